package refserver_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
	"github.com/keepwell-go/keepwell/refserver"
)

func oneSandbox(cfg *refserver.Config) { cfg.MaxSandboxes = 1 }

func TestADestroyThatCannotBeConfirmedIsSaidSoAndCanBeRetried(t *testing.T) { // R28, R83
	for _, c := range []struct {
		name  string
		fault memory.Fault
	}{
		{"fails", memory.Fault{Call: "destroy", Err: errors.New("the volume stays")}},
		{"half_done", memory.Fault{Call: "destroy", Partial: true}},
		{"engine_down", memory.Fault{Call: "destroy", Err: backend.ErrUnavailable}},
		{"hangs", memory.Fault{Call: "destroy", Hang: true, Deaf: true}},
		{"panics", memory.Fault{Call: "destroy", Panic: "boom"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.create("a")
				mend := w.engine.Inject(c.fault)
				got := w.destroy("a")
				if c.name == "panics" {
					got.want(t, 500, "internal")
				} else if got.want(t, 502, "destroy_failed"); got.body["deleted"] != false || got.str("outcome") != "unknown" {
					t.Errorf("answered %s", got.raw)
				}
				if n := w.srv.Len(); n != 1 {
					t.Errorf("%d registered, want the entry kept", n)
				}
				if c.name != "half_done" { // which is stopped, so that a GET finds that out
					w.get("a").want(t, 200, "")
				}
				if got := w.srv.TokenState("a"); got != "live" {
					t.Errorf("its slot is %s, want it held and live again", got)
				}
				mend()
				if got := w.destroy("a").want(t, 200, ""); got.body["deleted"] != true {
					t.Errorf("retry answered %s", got.raw)
				}
				w.get("a").want(t, 404, "not_found")
				if used := w.srv.Used("host", ""); used != 0 {
					t.Errorf("%d counted after the end", used)
				}
			})
		})
	}
}

func TestASlotIsHeldUntilTheTeardownIsConfirmed(t *testing.T) { // R86
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		mend := w.engine.Inject(memory.Fault{Call: "destroy", Err: errors.New("stuck")})
		w.destroy("a").want(t, 502, "destroy_failed")
		w.do("POST", "/v1/sandboxes", `{"id":"b"}`).want(t, 429, "quota_exceeded")
		mend()
		destroys := w.hold("destroy")
		gone := w.later("DELETE", "/v1/sandboxes/a", "")
		<-destroys.came
		w.do("POST", "/v1/sandboxes", `{"id":"b"}`).want(t, 429, "quota_exceeded")
		destroys.release()
		(<-gone).want(t, 200, "")
		w.create("b")
	}, oneSandbox)
}

func TestConcurrentDestroysJoinOneTeardown(t *testing.T) { // R84
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		destroys := w.hold("destroy")
		var all []<-chan answer
		for range 20 {
			all = append(all, w.later("DELETE", "/v1/sandboxes/a", ""))
		}
		synctest.Wait()
		if got := w.do("POST", "/v1/sandboxes", `{"id":"a"}`).want(t, 409, "duplicate"); got.str("state") != "destroying" {
			t.Errorf("create meanwhile answered %s", got.raw)
		}
		destroys.release()
		first := (<-all[0]).want(t, 200, "")
		for _, ch := range all[1:] {
			if got := <-ch; got.status != 200 || got.raw != first.raw {
				t.Errorf("answered %d %s, and the first %s", got.status, got.raw, first.raw)
			}
		}
		if n := w.engine.Calls("destroy"); n != 1 {
			t.Errorf("the backend destroyed %d times, want once", n)
		}
	})
}

func TestOneCallersLeavingDoesNotFailADestroyThatOthersJoined(t *testing.T) { // R84
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		destroys := w.hold("destroy")
		leave := w.leaver("DELETE", "/v1/sandboxes/a", "")
		<-destroys.came
		joined := w.later("DELETE", "/v1/sandboxes/a", "")
		synctest.Wait()
		leave()
		synctest.Wait()
		destroys.release()
		(<-joined).want(t, 200, "")
	})
}

func TestAGoexitInATeardownStrandsNobody(t *testing.T) { // R84
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		lift := w.engine.Inject(memory.Fault{Call: "destroy", Times: 1, Do: goexit})
		defer lift()
		w.destroy("a").want(t, 500, "internal")
		w.get("a").want(t, 200, "")
		w.destroy("a").want(t, 200, "")
	}, unbounded)
}

// unbounded makes calls of the backend run on their callers' goroutines.
func unbounded(cfg *refserver.Config) {
	cfg.Budgets = backend.Budgets{Ping: -1, List: -1, Create: -1, Stop: -1, Destroy: -1, Mark: -1}
}

func TestWhileASandboxIsBeingDestroyedItIsNotFoundAndNotLookedFor(t *testing.T) { // R79
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		destroys := w.hold("destroy")
		gone := w.later("DELETE", "/v1/sandboxes/a", "")
		<-destroys.came
		before := w.engine.Calls("list")
		w.get("a").want(t, 404, "not_found")
		w.exec("a").want(t, 404, "not_found")
		w.stop("a").want(t, 404, "not_found")
		if n := w.engine.Calls("list") - before; n != 0 {
			t.Errorf("%d lists", n)
		}
		destroys.release()
		(<-gone).want(t, 200, "")
	})
}

func TestAListFromBeforeADestroyDoesNotBringItsSandboxBack(t *testing.T) { // R78
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		g := newGate()
		lift := w.engine.Inject(memory.Fault{Call: "list", Times: 1, After: true, Do: g.pass})
		defer lift()
		other := w.later("GET", "/v1/sandboxes?fresh=1", "")
		<-g.came // the list has been made, with a
		w.destroy("a").want(t, 200, "")
		g.release()
		if ids := idsOf(t, <-other); ids != "" {
			t.Errorf("listed %q", ids)
		}
		if n, used := w.srv.Len(), w.srv.Used("host", ""); n != 0 || used != 0 {
			t.Errorf("%d registered, %d counted", n, used)
		}
	})
}

func TestADestroyIsFencedByTheInstanceItWasDecidedOn(t *testing.T) { // R85
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		w.be.Remove("a")
		replacement := w.outside("a") // behind the server's back
		if got := w.destroy("a").want(t, 200, ""); got.str("outcome") != "gone" {
			t.Errorf("answered %s", got.raw)
		}
		if got := w.get("a").want(t, 200, ""); got.str("instance") != replacement.Instance {
			t.Errorf("the replacement is %q, want %q", got.str("instance"), replacement.Instance)
		}
	})
}

func TestStoppedSandboxesAreDestroyedToo(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		w.stop("a").want(t, 200, "")
		if used := w.srv.Used("host", ""); used != 0 {
			t.Errorf("%d counted: a stopped sandbox counts against no quota", used)
		}
		if got := w.stop("a").want(t, 200, ""); got.str("outcome") != "gone" {
			t.Errorf("second stop answered %s", got.raw)
		}
		w.destroy("a").want(t, 200, "")
		w.get("a").want(t, 404, "not_found")
	})
}

func TestADestroyDuringAStopWaitsForItAndThenDestroys(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		stops := w.hold("stop")
		stopped := w.later("POST", "/v1/sandboxes/a:stop", "")
		<-stops.came
		seen := w.later("GET", "/v1/sandboxes/a", "")
		if got := w.do("POST", "/v1/sandboxes", `{"id":"a"}`).want(t, 409, "duplicate"); got.str("state") != "running" {
			t.Errorf("a create during the stop is told %s", got.raw)
		}
		gone := w.later("DELETE", "/v1/sandboxes/a", "")
		synctest.Wait()
		stops.release()
		(<-stopped).want(t, 200, "")
		(<-gone).want(t, 200, "")
		if got := <-seen; got.status != 404 {
			t.Errorf("GET during the stop answered %d %s", got.status, got.raw)
		}
		w.get("a").want(t, 404, "not_found")
	})
}

func TestAStopThatFailsLeavesEverythingAsItWas(t *testing.T) { // R46
	inBubble(t, func(t *testing.T, w *world) {
		made := w.create("a")
		lift := w.engine.Inject(memory.Fault{Call: "stop", Err: errors.New("stuck")})
		if got := w.stop("a").want(t, 502, "stop_failed"); got.str("outcome") != "unknown" {
			t.Errorf("answered %s", got.raw)
		}
		if got := w.get("a").want(t, 200, ""); got.str("instance") != made.str("instance") || w.srv.TokenState("a") != "live" {
			t.Errorf("left as %s", got.raw)
		}
		lift()
		w.stop("a").want(t, 200, "")
	})
}

func TestABackendCallThatHangsEndsAtItsBudgetAsUnknown(t *testing.T) { // R34, R35
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		start := time.Now()
		lift := w.engine.Inject(memory.Fault{Hang: true})
		defer lift()
		got := w.destroy("a").want(t, 502, "destroy_failed")
		if took := time.Since(start); took != time.Minute {
			t.Errorf("answered after %v, want the 60 s of a destroy", took)
		}
		if got.str("outcome") != "unknown" {
			t.Errorf("answered %s", got.raw)
		}
		w.stop("a").want(t, 502, "stop_failed")
		w.get("a").want(t, 503, "backend_unavailable")
		if took := time.Since(start); took != 2*time.Minute+15*time.Second {
			t.Errorf("all after %v, want 60 s, 60 s and the 15 s of a list", took)
		}
	})
}

func TestABudgetOfLessThanZeroIsNone(t *testing.T) { // R34
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		destroys := w.hold("destroy")
		gone := w.later("DELETE", "/v1/sandboxes/a", "")
		<-destroys.came
		time.Sleep(24 * time.Hour)
		destroys.release()
		(<-gone).want(t, 200, "")
	}, unbounded)
}

func TestCloseWaitsForWhatHasBegun(t *testing.T) {
	for call, request := range map[string][2]string{
		"create":  {"POST", "/v1/sandboxes"},
		"stop":    {"POST", "/v1/sandboxes/a:stop"},
		"destroy": {"DELETE", "/v1/sandboxes/a"},
	} {
		t.Run(call, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.create("a")
				calls := w.hold(call)
				done := w.later(request[0], request[1], map[bool]string{true: `{"id":"b"}`}[call == "create"])
				<-calls.came
				closed := make(chan struct{})
				go func() { defer close(closed); w.srv.Close() }()
				synctest.Wait()
				select {
				case <-closed:
					t.Error("closed while the engine was still at it")
				default:
				}
				calls.release()
				<-closed
				if got := <-done; got.status/100 != 2 {
					t.Errorf("answered %d %s", got.status, got.raw)
				}
			})
		})
	}
}
