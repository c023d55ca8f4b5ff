package refserver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
	"github.com/keepwell-go/keepwell/refserver"
)

func twoSandboxes(cfg *refserver.Config) { cfg.MaxSandboxes = 2 }

func TestAServerThatHasNotHeardFromItsBackendListsNothingAsAbsent(t *testing.T) { // R13
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		_, w.url = w.replica("b")
		mend := w.engine.Break()
		w.do("GET", "/v1/sandboxes", "").want(t, 503, "backend_unavailable")
		mend()
		for range 2 {
			before := w.engine.Calls("list")
			if got := idsOf(t, w.do("GET", "/v1/sandboxes", "").want(t, 200, "")); got != "a" {
				t.Errorf("listed %q", got)
			}
			if n := w.engine.Calls("list") - before; n > 1 {
				t.Errorf("%d lists", n)
			}
		}
		defer w.engine.Break()()
		w.do("GET", "/v1/sandboxes", "").want(t, 200, "") // from the registry
	})
}

func TestAServerThatHasJustBegunCountsWhatWasThereBeforeIt(t *testing.T) { // R101
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		w.create("b")
		_, w.url = w.replica("b", twoSandboxes)
		mend := w.engine.Inject(memory.Fault{Call: "list", Err: errors.New("boom")})
		w.do("POST", "/v1/sandboxes", `{"id":"c"}`).want(t, 503, "backend_unavailable")
		mend()
		got := w.do("POST", "/v1/sandboxes", `{"id":"c"}`).want(t, 429, "quota_exceeded")
		if got.body["used"] != 2.0 {
			t.Errorf("used is %v, want 2", got.body["used"])
		}
		w.destroy("a").want(t, 200, "")
		w.create("c")
	})
}

// A backend that cannot read one of its sandboxes never gives a complete list. What it shows is counted, and it is not asked again.
func TestAnIncompleteListIsEnoughToBeginWith(t *testing.T) { // R101
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		_, w.url = w.replica("b", twoSandboxes, func(cfg *refserver.Config) { cfg.Backend = torn{w.be} })
		before := w.engine.Calls("list")
		w.do("POST", "/v1/sandboxes", `{"id":"b"}`).want(t, 201, "")
		for i := range 3 {
			w.do("POST", "/v1/sandboxes", fmt.Sprintf(`{"id":"c%d"}`, i)).want(t, 429, "quota_exceeded")
		}
		if n := w.engine.Calls("list") - before; n != 1 {
			t.Errorf("%d lists for four creates, want one", n)
		}
	})
}

// A sandbox whose runner does not answer runs all the same. Its place is free when it has gone, and not before.
func TestASandboxThatDoesNotAnswerCountsForAServerThatHasJustBegun(t *testing.T) { // R101
	for name, end := range map[string]func(*memory.Backend, string) bool{"removed": (*memory.Backend).Remove, "killed": (*memory.Backend).Kill} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.create("a")
				w.runner.deafen("a", true)
				w.srv, w.url = w.replica("b", oneSandbox)
				for range 2 {
					w.do("POST", "/v1/sandboxes", `{"id":"b"}`).want(t, 429, "quota_exceeded")
				}
				if got := w.do("POST", "/v1/sandboxes", `{"id":"a"}`).want(t, 409, "duplicate"); got.str("state") != "running" {
					t.Errorf("answered %s", got.raw)
				}
				w.do("POST", "/v1/sandboxes", `{"id":"b"}`).want(t, 429, "quota_exceeded")
				end(w.be, "a")
				w.runner.deafen("a", false)
				w.create("a") // whose place it was, so that no sweep is waited for
				w.do("POST", "/v1/sandboxes", `{"id":"b"}`).want(t, 429, "quota_exceeded")
				w.runner.deafen("a", true)
				w.srv, w.url = w.replica("c", oneSandbox)
				w.do("POST", "/v1/sandboxes", `{"id":"b"}`).want(t, 429, "quota_exceeded")
				end(w.be, "a")
				w.sweep()
				w.create("b")
				if n := w.srv.Silent(); n != 0 {
					t.Errorf("%d are remembered as silent", n)
				}
			})
		})
	}
}

// torn is a backend that can never read all of what it has.
type torn struct{ backend.Backend }

func (b torn) List(ctx context.Context, ids ...string) (backend.Snapshot, error) {
	snap, err := b.Backend.List(ctx, ids...)
	snap.Complete = false
	return snap, err
}

func TestCreatesInFlightCountAgainstTheHostLimit(t *testing.T) { // R18
	inBubble(t, func(t *testing.T, w *world) {
		a, b := newGate(), newGate()
		w.engine.Inject(memory.Fault{Call: "create", ID: "a", Do: a.pass, Err: errors.New("boom")})
		w.engine.Inject(memory.Fault{Call: "create", ID: "b", Do: b.pass})
		first, second := w.later("POST", "/v1/sandboxes", `{"id":"a"}`), w.later("POST", "/v1/sandboxes", `{"id":"b"}`)
		<-a.came
		<-b.came
		got := w.do("POST", "/v1/sandboxes", `{"id":"c"}`).want(t, 429, "quota_exceeded")
		if got.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		for name, want := range map[string]any{"limit": "host", "key": "", "max": 2.0, "used": 2.0} { // R88
			if got.body[name] != want {
				t.Errorf("%s is %v, want %v", name, got.body[name], want)
			}
		}
		mend := w.engine.Inject(memory.Fault{Call: "stop", ID: "a"})
		defer mend()
		a.release()
		(<-first).want(t, 502, "create_failed")
		b.release()
		(<-second).want(t, 201, "")
	}, twoSandboxes)
}

func TestARefusedCreateMakesRoomForTheNext(t *testing.T) { // R18, R21
	inBubble(t, func(t *testing.T, w *world) {
		g := newGate()
		w.engine.Inject(memory.Fault{Call: "create", ID: "a", Do: g.pass, Err: backend.ErrUnavailable})
		first := w.later("POST", "/v1/sandboxes", `{"id":"a"}`)
		<-g.came
		w.do("POST", "/v1/sandboxes", `{"id":"b"}`).want(t, 429, "quota_exceeded")
		g.release()
		(<-first).want(t, 503, "backend_unavailable")
		w.create("b")
	}, oneSandbox)
}

func TestCreatesInFlightCountAgainstTheirTenant(t *testing.T) { // R19
	inBubble(t, func(t *testing.T, w *world) {
		g := newGate()
		w.engine.Inject(memory.Fault{Call: "create", ID: "a1", Do: g.pass})
		first := w.later("POST", "/v1/sandboxes", `{"id":"a1","tenant":"A"}`)
		<-g.came
		got := w.do("POST", "/v1/sandboxes", `{"id":"a2","tenant":"A"}`).want(t, 429, "quota_exceeded")
		if got.str("limit") != "tenant" || got.str("key") != "A" || !strings.Contains(got.str("error"), `"A"`) {
			t.Errorf("answered %s", got.raw)
		}
		w.do("POST", "/v1/sandboxes", `{"id":"b1","tenant":"B"}`).want(t, 201, "")
		g.release()
		(<-first).want(t, 201, "")
	}, func(cfg *refserver.Config) { cfg.MaxPerTenant = 1 })
}

func TestADuplicateIsOneAlsoWhenTheQuotaIsFull(t *testing.T) { // R20
	inBubble(t, func(t *testing.T, w *world) {
		creates := w.hold("create")
		first := w.later("POST", "/v1/sandboxes", `{"id":"a"}`)
		<-creates.came
		if got := w.do("POST", "/v1/sandboxes", `{"id":"a"}`).want(t, 409, "duplicate"); got.str("state") != "creating" {
			t.Errorf("answered %s", got.raw)
		}
		creates.release()
		(<-first).want(t, 201, "")
		if got := w.do("POST", "/v1/sandboxes", `{"id":"a"}`).want(t, 409, "duplicate"); got.str("state") != "running" {
			t.Errorf("answered %s", got.raw)
		}
		if n := w.engine.Calls("create"); n != 1 {
			t.Errorf("%d creates reached the backend", n)
		}
	}, oneSandbox)
}

func TestAFailedCreateGivesBackWhatItReserved(t *testing.T) { // R21
	for _, c := range []struct {
		name   string
		fault  memory.Fault
		status int
		code   string
	}{
		{"invalid", memory.Fault{Err: backend.ErrInvalid}, 400, "bad_request"},
		{"engine_full", memory.Fault{Err: backend.ErrQuota}, 429, "quota_exceeded"},
		{"conflict", memory.Fault{Err: backend.ErrConflict}, 409, "duplicate"},
		{"engine_down", memory.Fault{Err: backend.ErrUnavailable}, 503, "backend_unavailable"},
		{"panic", memory.Fault{Panic: "boom"}, 500, "internal"},
		{"no_answer_but_it_was_made", memory.Fault{After: true, Err: errors.New("lost")}, 502, "create_failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				c.fault.Call, c.fault.Times = "create", 1
				w.engine.Inject(c.fault)
				w.do("POST", "/v1/sandboxes", `{"id":"a"}`).want(t, c.status, c.code)
				if used := w.srv.Used("host", ""); used != 0 {
					t.Errorf("%d counted", used)
				}
				if n := w.engine.Calls("stop") + w.engine.Calls("destroy"); n != 0 && c.status != 502 {
					t.Errorf("%d attempts to undo what was never made", n)
				}
				w.create("b")
			}, oneSandbox)
		})
	}
}

func TestAtTheLimitASlotIsNeitherLostNorGivenTwice(t *testing.T) { // R22
	const slots, rounds = 4, 25
	inBubble(t, func(t *testing.T, w *world) {
		var wg sync.WaitGroup
		for i := range slots {
			wg.Go(func() {
				for n := range rounds {
					id := fmt.Sprintf("s%d-%d", i, n)
					if got := <-w.later("POST", "/v1/sandboxes", fmt.Sprintf(`{"id":%q}`, id)); got.status != 201 {
						t.Errorf("create with a free slot answered %d %s", got.status, got.raw)
						return
					}
					if got := <-w.later("DELETE", "/v1/sandboxes/"+id, ""); got.status != 200 {
						t.Errorf("destroy answered %d %s", got.status, got.raw)
						return
					}
				}
			})
		}
		wg.Wait()
		if used := w.srv.Used("host", ""); used != 0 {
			t.Errorf("%d counted in the end", used)
		}
	}, func(cfg *refserver.Config) { cfg.MaxSandboxes = slots })
}

func TestWithMoreCallersThanSlotsNoMoreThanTheLimitLive(t *testing.T) { // R22
	const slots, callers, rounds = 3, 8, 20
	inBubble(t, func(t *testing.T, w *world) {
		var made atomic.Int64
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for n := range rounds {
					id := fmt.Sprintf("s%d-%d", i, n)
					if got := <-w.later("POST", "/v1/sandboxes", fmt.Sprintf(`{"id":%q}`, id)); got.status != 201 {
						continue
					}
					made.Add(1)
					<-w.later("DELETE", "/v1/sandboxes/"+id, "")
				}
			})
		}
		wg.Wait()
		if most := w.runner.mostAtOnce(); most != slots {
			t.Errorf("%d lived at once, the limit is %d", most, slots)
		}
		if made.Load() < slots || w.srv.Used("host", "") != 0 {
			t.Errorf("%d made, %d counted in the end", made.Load(), w.srv.Used("host", ""))
		}
	}, func(cfg *refserver.Config) { cfg.MaxSandboxes = slots })
}
