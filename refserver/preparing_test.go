package refserver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
	"github.com/keepwell-go/keepwell/refserver"
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

// Who asks for an image that cannot be had is told so, and the cause, with its addresses, is in the log alone.
func TestACreateWhoseImageCannotBeHadIsToldWhy(t *testing.T) {
	for reason, want := range map[string]string{
		"no such host": `image "large:1" cannot be had at the moment: no such host`,
		"":             `image "large:1" cannot be had at the moment; the server's log says why`,
	} {
		log, lines := observer.New(zap.WarnLevel)
		inBubble(t, func(t *testing.T, w *world) {
			lacks := &backend.ImageError{Image: "large:1", Reason: reason, Cause: errors.New("lookup r.corp on 10.0.0.2:53: no such host")}
			w.engine.Inject(memory.Fault{Call: "create", Times: 1, Err: fmt.Errorf("engine: create: %w", lacks)})
			got := w.do("POST", "/v1/sandboxes", `{"id":"a","image":"large:1"}`).want(t, 503, "backend_unavailable")
			if got.str("error") != want || got.header.Get("Retry-After") == "" {
				t.Errorf("answered %v %s, want %s", got.header, got.raw, want)
			}
			if n := w.engine.Calls("stop") + w.engine.Calls("destroy"); n != 0 {
				t.Errorf("%d attempts to undo what was never made", n)
			}
			w.create("a") // the only slot
		}, oneSandbox, func(cfg *refserver.Config) { cfg.Logger = zap.New(log) })
		if said := fmt.Sprint(lines.All()); !strings.Contains(said, "10.0.0.2") {
			t.Errorf("the log lacks the cause: %s", said)
		}
	}
}

// What is being fetched is unavailable to those who know no better.
func TestPreparingIsAKindOfUnavailable(t *testing.T) {
	if !errors.Is(backend.ErrPreparing, backend.ErrUnavailable) || errors.Is(backend.ErrUnavailable, backend.ErrPreparing) {
		t.Error("it is not")
	}
}
