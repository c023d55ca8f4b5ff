package docker_test

import (
	"context"
	"net/http"
	"path"
	"sync"
	"testing"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/docker/enginetest"
)

// watch returns where hints come in until the end of the test. Hints that nobody takes become one.
func watch(t *testing.T, b backend.Watcher) <-chan struct{} {
	t.Helper()
	hints := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { // ends with ctx
		b.Watch(ctx, func() {
			select {
			case hints <- struct{}{}:
			default:
			}
		})
	})
	t.Cleanup(func() { cancel(); watching.Wait() })
	return hints
}

// await takes hints until what is listed is as it should be. Without a hint the test ends by its own timeout.
func (w *world) await(t *testing.T, b backend.Backend, r backend.Ref, want string, hints <-chan struct{}) {
	t.Helper()
	for got := w.isListed(t, b, r); got != want; got = w.isListed(t, b, r) {
		select {
		case <-hints:
		case <-t.Context().Done():
			t.Fatalf("it is listed as %s, want %s", got, want)
		}
	}
}

// What happens behind our back is hinted at, whoever did it; and so is what happened while the stream was broken, or the engine away.
func TestTheEngineTellsOfWhatHappensBehindOurBack(t *testing.T) {
	e := engine(t)
	w := newWorld(t, e)
	b, err := w.openWith(w.config("watch"))
	if err != nil {
		t.Fatal(err)
	}
	s := spec("watch", "")
	id, err := w.container(t.Context(), mustCreate(t, b, s).Ref)
	if err != nil {
		t.Fatal(err)
	}
	mend := w.proxy.Fault("", enginetest.Once("/events", enginetest.Refuse)) // there is no first stream
	defer func() { _ = mend() }()
	hints := watch(t, b)
	<-hints
	<-hints // of the next stream
	if err := w.removeContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	<-hints // of its end, and of nothing else
	w.await(t, b, s.Ref, "stopped", hints)

	s.Instance = "i2"
	mustCreate(t, b, s)
	<-hints // of its start
	if e.Dir != "" {
		if err := e.Run("restart"); err != nil {
			t.Fatal(err)
		}
		<-hints
		w.await(t, b, s.Ref, "stopped", hints)
	}
	mustDestroy(t, b, s.Ref)
}

// The engine is asked for no events but those of the sandboxes of this owner.
func TestTheEngineIsAskedForOurOwnEventsOnly(t *testing.T) {
	w := newWorld(t, engine(t))
	b, err := w.openWith(w.config("events"))
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, 1)
	mend := w.proxy.Fault("", func(r *http.Request) enginetest.Verdict {
		if path.Base(r.URL.Path) == "events" {
			asked <- r.URL.Query().Get("filters")
		}
		return enginetest.Pass
	})
	defer func() { _ = mend() }()
	watch(t, b)
	const want = `{"event":{"destroy":true,"die":true,"start":true},` +
		`"label":{"keepwell.kind=sandbox":true,"keepwell.owner=events":true},"type":{"container":true}}`
	if got := <-asked; got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}
}
