package refserver_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/refserver"
	"github.com/keepwell-go/keepwell/refserver/binding"
)

// slowEnds is a store that keeps ends of processes once its gate is open.
type slowEnds struct {
	binding.Store
	gate *gate
	kept atomic.Int64
}

func (s *slowEnds) End(ctx context.Context, ref backend.Ref, id string, at time.Time) error {
	if err := s.gate.pass(ctx); err != nil {
		return err
	}
	s.kept.Add(1)
	return s.Store.End(ctx, ref, id, at)
}

// slowEndsBubble runs a test with such a store, and a sandbox called a whose runner is of protocol 1 and answers with ends.
func slowEndsBubble(t *testing.T, test func(t *testing.T, w *world, store *slowEnds)) {
	t.Helper()
	store := &slowEnds{Store: binding.NewMemory()}
	inBubble(t, func(t *testing.T, w *world) {
		store.gate = newGate() // in the bubble
		w.runner.speak(1)
		w.create("a")
		ends(w)
		test(t, w, store)
	}, func(cfg *refserver.Config) { cfg.Bindings = store })
}

// R77: and Close does not lose it.
func TestAnEndIsToldBeforeItIsKept(t *testing.T) {
	for name, rq := range map[string][3]string{
		"exec":   {"POST", "exec", `{"id":"proc_x","cmd":"true"}`},
		"output": {"GET", "processes/proc_x/output?follow=1", ""},
		"kill":   {"DELETE", "processes/proc_x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			slowEndsBubble(t, func(t *testing.T, w *world, store *slowEnds) {
				began := time.Now()
				w.do(rq[0], "/v1/sandboxes/a/"+rq[1], rq[2]).want(t, 200, "")
				if took := time.Since(began); took != 0 {
					t.Errorf("the answer ended after %s", took)
				}
				closed := make(chan struct{})
				go func() { w.srv.Close(); close(closed) }()
				synctest.Wait()
				select {
				case <-closed:
					t.Error("Close has not waited")
				default:
				}
				store.gate.release()
				<-closed
				if n := store.kept.Load(); n != 1 {
					t.Errorf("%d ends were kept, want 1", n)
				}
			})
		})
	}
}

func TestAnEndThatIsSeenWhileTheServerClosesIsKeptAllTheSame(t *testing.T) { // R77
	slowEndsBubble(t, func(t *testing.T, w *world, store *slowEnds) {
		w.srv.Close()
		store.gate.release()
		w.do("GET", "/v1/sandboxes/a/processes/proc_x/output?follow=1", "").want(t, 200, "")
		if n := store.kept.Load(); n != 1 {
			t.Errorf("%d ends were kept, want 1", n)
		}
	})
}

func TestAStoreThatIsSlowIsNotSentMoreAndMore(t *testing.T) {
	slowEndsBubble(t, func(t *testing.T, w *world, store *slowEnds) {
		const enough = 64
		for range enough {
			w.do("DELETE", "/v1/sandboxes/a/processes/proc_x", "").want(t, 200, "")
		}
		waits := w.later("DELETE", "/v1/sandboxes/a/processes/proc_x", "")
		synctest.Wait()
		select {
		case got := <-waits:
			t.Errorf("answered %s while %d ends wait to be kept", got.raw, enough)
		default:
		}
		store.gate.release()
		(<-waits).want(t, 200, "")
	})
}
