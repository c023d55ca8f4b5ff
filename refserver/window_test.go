package refserver_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
	"github.com/keepwell-go/keepwell/refserver"
)

// watched is a clock that lets a test look on whenever it is read, which is between the steps of creates and teardowns.
type watched struct {
	clock.Clock
	look atomic.Pointer[func()] // nil: nobody looks
}

func (c *watched) Now() time.Time {
	if look := c.look.Load(); look != nil {
		(*look)()
	}
	return c.Clock.Now()
}

// since returns what makes look happen from then on. It comes after the effect of a call of the backend, since the registry reads
// the clock under its lock when a hold begins.
func (c *watched) since(look func()) func(context.Context) error {
	return func(context.Context) error {
		c.look.Store(&look)
		return nil
	}
}

// watchedBubble is inBubble with a server on a watched clock.
func watchedBubble(t *testing.T, test func(t *testing.T, w *world, c *watched)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &watched{Clock: clock.New()}
		test(t, newWorld(t, func(cfg *refserver.Config) { cfg.Clock = c }), c)
	})
}

// Whoever holds an id moves its count, so nobody else who comes to hold it may find one in motion. // R21, R22
func TestACountIsInMotionOnlyWhileItsIDIsHeld(t *testing.T) {
	failed := errors.New("boom")
	for name, c := range map[string]struct {
		fault  memory.Fault
		method string
		path   string
		status int
		looks  int64 // at the least: each is a step at which another order would show
	}{
		"create":                {memory.Fault{Call: "create", After: true}, "POST", "", 201, 2},
		"create_refused":        {memory.Fault{Call: "create", Err: backend.ErrUnavailable}, "POST", "", 503, 1},
		"create_without_answer": {memory.Fault{Call: "create", After: true, Err: failed}, "POST", "", 502, 1},
		"destroy":               {memory.Fault{Call: "destroy", After: true}, "DELETE", "/a", 200, 2},
		"destroy_fails":         {memory.Fault{Call: "destroy", Err: failed}, "DELETE", "/a", 502, 1},
		"stop":                  {memory.Fault{Call: "stop", After: true}, "POST", "/a:stop", 200, 2},
		"stop_fails":            {memory.Fault{Call: "stop", Err: failed}, "POST", "/a:stop", 502, 1},
	} {
		t.Run(name, func(t *testing.T) {
			watchedBubble(t, func(t *testing.T, w *world, clock *watched) {
				if c.path != "" {
					w.create("a")
				}
				var looks atomic.Int64
				c.fault.Do = clock.since(func() {
					looks.Add(1)
					if state := w.srv.TokenState("a"); w.srv.Registry().Held == 0 && state != "live" && state != "not counted" {
						t.Errorf("its count is %s, and nobody holds it", state)
					}
				})
				w.engine.Inject(c.fault)
				got := w.do(c.method, "/v1/sandboxes"+c.path, map[bool]string{true: `{"id":"a"}`}[c.path == ""])
				clock.look.Store(nil)
				if got.status != c.status || looks.Load() < c.looks {
					t.Errorf("answered %d %s after %d looks", got.status, got.raw, looks.Load())
				}
			})
		})
	}
}

// As soon as the id of a sandbox that was destroyed or stopped is free, a create of it is counted as any other, and ending what it
// has made is not taken for the call that ended the one before. // R22, R84
func TestATeardownThatIsConfirmedStandsInNobodysWay(t *testing.T) {
	for call, request := range map[string][2]string{"destroy": {"DELETE", ""}, "stop": {"POST", ":stop"}} {
		t.Run(call, func(t *testing.T) {
			watchedBubble(t, func(t *testing.T, w *world, clock *watched) {
				w.create("a")
				var again <-chan answer
				lift := w.engine.Inject(memory.Fault{Call: call, Times: 1, After: true, Do: clock.since(func() {
					if w.srv.Registry().Held > 0 || again != nil {
						return
					}
					clock.look.Store(nil)
					if got := <-w.later("POST", "/v1/sandboxes", `{"id":"a"}`); got.status != 201 {
						t.Errorf("create answered %d %s", got.status, got.raw)
					}
					again = w.later(request[0], "/v1/sandboxes/a"+request[1], "")
					synctest.Wait()
				})})
				defer lift()
				w.do(request[0], "/v1/sandboxes/a"+request[1], "").want(t, 200, "")
				if again == nil {
					t.Fatal("nobody looked while the teardown came to its end")
				}
				(<-again).want(t, 200, "")
				if n := w.engine.Calls(call); n != 2 {
					t.Errorf("the backend was asked %d times, want once for each of two instances", n)
				}
				if n := w.srv.Len(); n != 0 {
					t.Errorf("%d are registered", n)
				}
			})
		})
	}
}

// A request that has looked a sandbox up and comes to pin it only when it has been taken does not use it. // R31
func TestAPinThatComesTooLateIsNone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		late := w.srv.Pinning("a")
		asked := w.runner.holdActivity()
		gone := w.later("DELETE", "/v1/sandboxes/a?if_idle=1", "")
		<-asked.came // it was taken, and had no pin then
		if _, ok := late(); ok {
			t.Error("what is about to be destroyed as idle could be pinned")
		}
		asked.release()
		(<-gone).want(t, 200, "")
		w.create("a")
		if _, ok := late(); ok {
			t.Error("what was destroyed could be pinned since another one has its id")
		}
		end, ok := w.srv.Pinning("a")()
		if !ok || w.srv.Pins("a") != 1 {
			t.Fatalf("what nobody has taken: %v, %d pins", ok, w.srv.Pins("a"))
		}
		w.do("DELETE", "/v1/sandboxes/a?if_idle=1", "").want(t, 409, "busy")
		end()
		w.do("DELETE", "/v1/sandboxes/a?if_idle=1", "").want(t, 200, "")
	})
}
