package docker_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/docker/enginetest"
)

// announced is a clock that stands still and tells of the timers it is asked for.
type announced struct {
	*clock.Mock
	timers chan time.Duration
}

func (c announced) Timer(d time.Duration) *clock.Timer {
	t := c.Mock.Timer(d)
	c.timers <- d
	return t
}

// hangingPulls makes each pull hang and tells of it.
func (w *world) hangingPulls(t *testing.T) (asked <-chan struct{}) {
	ch := make(chan struct{}, 100)
	mend := w.proxy.Fault("", func(r *http.Request) enginetest.Verdict {
		if isPull(r) {
			ch <- struct{}{}
			return enginetest.Hang
		}
		return enginetest.Pass
	})
	t.Cleanup(func() { _ = mend() })
	return ch
}

// R36, R109: a create waits a minute for its image, and the fetch goes on for half an hour in all, whoever waits for it.
func TestAFetchEndsAtItsOwnBudget(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	asked := w.hangingPulls(t)
	now := announced{clock.NewMock(), make(chan time.Duration, 8)}
	cfg := w.config("fetchends")
	cfg.Clock = now
	b, err := w.openWith(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := spec("box", "")
	s.Image = "keepwell-test/endless:1"
	for i, c := range []struct {
		wait      time.Duration
		preparing bool
	}{{time.Minute, true}, {29*time.Minute - 1, true}, {1, false}} {
		made := make(chan error, 1)
		go func() { _, err := b.Create(t.Context(), s); made <- err }()
		if i == 0 {
			<-asked
		}
		if patience := <-now.timers; patience != time.Minute {
			t.Errorf("a create waits %v for its image", patience)
		}
		now.Add(c.wait)
		if err := <-made; !errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrPreparing) != c.preparing {
			t.Errorf("create %d: %v", i+1, err)
		}
	}
	if n := len(asked); n != 0 {
		t.Errorf("the image was pulled %d times more", n)
	}
}

// As many fetches as there are names would be a way to fill the engine's disk, since they outlive their creates.
func TestOnlySoManyImagesAreFetchedAtOnce(t *testing.T) {
	t.Parallel()
	const most = 16
	w := newWorld(t, engine(t))
	asked := w.hangingPulls(t)
	b, err := w.openWith(w.config("fetches"))
	if err != nil {
		t.Fatal(err)
	}
	create := func(ctx context.Context, i int) error {
		s := spec("box", "")
		s.Image = fmt.Sprintf("keepwell-test/endless:%d", i)
		_, err := b.Create(ctx, s)
		return err
	}
	ctx, leave := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for i := range most {
		waiting.Go(func() {
			if err := create(ctx, i); !errors.Is(err, backend.ErrPreparing) {
				t.Errorf("create %d: %v", i, err)
			}
		})
		<-asked
	}
	if err := create(t.Context(), most); !errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrPreparing) ||
		!strings.Contains(err.Error(), "the limit is 16") {
		t.Errorf("one more: %v", err)
	}
	leave()
	waiting.Wait()
}
