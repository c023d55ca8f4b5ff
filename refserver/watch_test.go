package refserver_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
)

// run lets the server work until the end of the test.
func (w *world) run(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.srv.Run(ctx) }) // ends with ctx
	t.Cleanup(func() { cancel(); running.Wait() })
	time.Sleep(2 * time.Second) // the first sweep
	synctest.Wait()
}

func TestWhatEndsBehindOurBackIsNoticedWithoutASweep(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.run(t)
		w.create("a")
		w.create("b")
		w.create("c")
		time.Sleep(2 * time.Second)
		w.be.Kill("a")
		w.be.Remove("b")
		w.outside("d")
		time.Sleep(2 * time.Second) // a sweep is due after a minute
		synctest.Wait()
		if got := w.srv.Registered(); len(got) != 2 || got["c"] == "" || got["d"] == "" || w.srv.Used("host", "") != 2 {
			t.Errorf("registered %v, %d counted; want c and d", got, w.srv.Used("host", ""))
		}
	})
}

// However much the backend has to tell, it is asked once a second at most, and once more after the last hint.
func TestHintsCauseFewLists(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.run(t)
		before := w.engine.Calls("list")
		for range 100 { // for ten seconds
			w.outside("a")
			w.be.Kill("a")
			time.Sleep(100 * time.Millisecond)
		}
		w.outside("b")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := w.engine.Calls("list") - before; n < 2 || n > 13 {
			t.Errorf("%d lists in 12 s", n)
		}
		if w.srv.Registered()["b"] == "" {
			t.Error("the last change was not noticed")
		}
	})
}

// A hint is no answer: while the backend cannot be asked nothing is dropped, and what is idle is left to the sweeps.
func TestAHintAloneChangesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.run(t)
		w.do("POST", "/v1/sandboxes", `{"id":"a","ttl_ms":1000}`).want(t, 201, "")
		mend := w.engine.Inject(memory.Fault{Call: "list", Err: backend.ErrUnavailable})
		w.outside("b")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		mend()
		w.outside("c")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := w.srv.Registered(); len(got) != 3 || w.engine.Calls("stop") != 0 {
			t.Errorf("registered %v, %d stops; want all three, and no stop before a sweep", got, w.engine.Calls("stop"))
		}
		w.get("a").want(t, 200, "")
	})
}
