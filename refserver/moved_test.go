package refserver_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
	"github.com/keepwell-go/keepwell/refserver"
)

// mover is a backend whose sandboxes may have another address than when they were created, as after a restart of a container.
type mover struct {
	*memory.Backend
	to *atomic.Pointer[string] // the address; nil: the first one
}

func (m mover) List(ctx context.Context, ids ...string) (backend.Snapshot, error) {
	snap, err := m.Backend.List(ctx, ids...)
	for i := range snap.Sandboxes {
		if to := m.to.Load(); to != nil && snap.Sandboxes[i].Running {
			snap.Sandboxes[i].Endpoint.Address = *to
		}
	}
	return snap, err
}

// A sandbox that runs elsewhere by now is used where it is, after the request that found out, or the sweep. It counts as before.
func TestASandboxThatHasMovedIsReachedWhereItIsNow(t *testing.T) {
	for name, sweeps := range map[string]bool{"asked": false, "swept": true} {
		t.Run(name, func(t *testing.T) {
			var to atomic.Pointer[string]
			inBubble(t, func(t *testing.T, w *world) {
				w.do("POST", "/v1/sandboxes", `{"id":"a"}`).want(t, 201, "")
				time.Sleep(time.Minute) // until no connection is kept
				stranger := newStubRunner()
				stranger.token = "another-token"
				t.Cleanup(w.net.listen("runner", stranger)) // has the address now
				t.Cleanup(w.net.listen("moved", w.runner))
				at := "moved:80"
				to.Store(&at)
				if sweeps {
					if err := w.srv.Sweep(t.Context()); err != nil {
						t.Fatal(err)
					}
				} else {
					w.do("POST", "/v1/sandboxes/a/exec", `{"cmd":"true"}`).want(t, 503, "runner_lost")
				}
				if got := w.srv.Registered(); got["a"] == "" || w.srv.Used("host", "") != 1 {
					t.Errorf("registered %v, %d counted; want a alone", got, w.srv.Used("host", ""))
				}
				w.do("POST", "/v1/sandboxes/a/exec", `{"cmd":"true"}`).want(t, 200, "")
			}, func(cfg *refserver.Config) { cfg.Backend = mover{cfg.Backend.(*memory.Backend), &to} })
		})
	}
}
