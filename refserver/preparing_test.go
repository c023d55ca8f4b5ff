package refserver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
)

// R109: a create whose image is being fetched is told so and when to come back. Meanwhile it holds neither its id nor its slot.
func TestACreateWhoseImageIsBeingFetchedIsToldToComeBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		fetched := w.engine.Inject(memory.Fault{Call: "create", ID: "a", Do: func(ctx context.Context) error {
			select {
			case <-time.After(time.Minute): // as long as a backend with images waits
				return fmt.Errorf("image %q: %w", "large", backend.ErrPreparing)
			case <-ctx.Done():
				return ctx.Err()
			}
		}})
		got := w.do("POST", "/v1/sandboxes", `{"id":"a","image":"large"}`).want(t, 503, "preparing")
		if got.header.Get("Retry-After") == "" {
			t.Errorf("answered without Retry-After: %v", got.header)
		}
		w.get("a").want(t, 404, "not_found")
		if used := w.srv.Used("host", ""); used != 0 || len(w.srv.Counted()) != 0 {
			t.Errorf("%d counted", used)
		}
		w.create("b") // the only slot
		w.destroy("b").want(t, 200, "")
		fetched()
		w.create("a")
		if n := w.engine.Calls("stop") + w.engine.Calls("destroy"); n != 1 {
			t.Errorf("%d stops and destroys, want that of b alone", n)
		}
	}, oneSandbox)
}

// What is being fetched is unavailable to those who know no better.
func TestPreparingIsAKindOfUnavailable(t *testing.T) {
	if !errors.Is(backend.ErrPreparing, backend.ErrUnavailable) || errors.Is(backend.ErrUnavailable, backend.ErrPreparing) {
		t.Error("it is not")
	}
}
