package refserver_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/backend/memory"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver"
)

// sweep runs one pass, which must succeed.
func (w *world) sweep() {
	w.t.Helper()
	if err := w.srv.Sweep(w.ctx); err != nil {
		w.t.Errorf("sweep: %v", err)
	}
}

func TestASweepStopsWhatIsIdleOrExpiredAndKeepsTheRest(t *testing.T) { // R42, R43, R44, R45, R47
	const hour = time.Hour
	idle := func(d time.Duration) wire.Activity { return wire.Activity{IdleMS: d.Milliseconds()} }
	for _, c := range []struct {
		name, create string
		age          time.Duration
		happen       func(w *world)
		left         bool
	}{
		{"in_use", `{}`, hour, func(w *world) { w.runner.set("a", idle(0)) }, true},
		{"idle_at_the_boundary", `{"idle_timeout_ms":60000}`, hour, func(w *world) { w.runner.set("a", idle(time.Minute)) }, true},
		{"idle", `{"idle_timeout_ms":60000}`, hour, func(w *world) { w.runner.set("a", idle(time.Minute+time.Millisecond)) }, false},
		{"expired_at_the_boundary", `{"ttl_ms":3600000}`, hour, func(*world) {}, true},
		{"expired", `{"ttl_ms":3600000}`, hour + time.Millisecond, func(*world) {}, false},
		{"expired_and_silent", `{"ttl_ms":3600000}`, 2 * hour, func(w *world) { w.runner.deafen("a", true) }, false},
		{"silent", `{}`, hour, func(w *world) { w.runner.deafen("a", true) }, true},
		{"busy_beyond_both", `{"ttl_ms":1000,"idle_timeout_ms":1000}`, hour, func(w *world) { w.runner.set("a", wire.Activity{Running: 1}) }, true},
		{"used_elsewhere", `{"ttl_ms":1000}`, hour, func(w *world) { w.runner.set("a", wire.Activity{Pins: 1}) }, true},
		{"pinned_beyond_both", `{"ttl_ms":1000,"idle_timeout_ms":1000,"pinned":true}`, hour, func(w *world) { w.runner.set("a", idle(hour)) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.do("POST", "/v1/sandboxes", `{"id":"a",`+c.create[1:len(c.create)-1]+comma(c.create)+`"tenant":"T"}`).want(t, 201, "")
				if err := w.be.WriteFile("a", "work", []byte("kept")); err != nil {
					t.Fatal(err)
				}
				c.happen(w)
				time.Sleep(c.age)
				w.sweep()
				if left := w.srv.Len() == 1; left != c.left {
					t.Errorf("left: %t, want %t", left, c.left)
				}
				if used := w.srv.Used("host", ""); (used == 1) != c.left {
					t.Errorf("%d counted", used)
				}
				if n := w.engine.Calls("destroy"); n != 0 {
					t.Errorf("%d destroys: a sweep deletes no data", n)
				}
				if data, err := w.be.ReadFile("a", "work"); err != nil || string(data) != "kept" {
					t.Errorf("workspace: %q, %v", data, err)
				}
			})
		})
	}
}

// comma separates what follows from the fields of an object, if it has any.
func comma(object string) string {
	if object == "{}" {
		return ""
	}
	return ","
}

func TestARequestUnderWaySparesItsSandbox(t *testing.T) { // R43, R89
	inBubble(t, func(t *testing.T, w *world) {
		w.do("POST", "/v1/sandboxes", `{"id":"a","ttl_ms":1000}`).want(t, 201, "")
		done := make(chan struct{})
		w.runner.handle(hangUntil(done))
		running := w.later("POST", "/v1/sandboxes/a/exec", `{}`)
		time.Sleep(time.Hour)
		w.sweep()
		if w.srv.Len() != 1 {
			t.Fatal("stopped under a running command")
		}
		close(done)
		(<-running).want(t, 200, "")
		w.sweep()
		if w.srv.Len() != 0 {
			t.Error("kept after the command had ended")
		}
	})
}

func TestAStopThatASweepCannotConfirmIsTriedAgain(t *testing.T) { // R46
	inBubble(t, func(t *testing.T, w *world) {
		w.do("POST", "/v1/sandboxes", `{"id":"a","ttl_ms":1000}`).want(t, 201, "")
		time.Sleep(time.Hour)
		w.engine.Inject(memory.Fault{Call: "stop", Times: 1, Err: errors.New("stuck")})
		if err := w.srv.Sweep(t.Context()); err == nil {
			t.Error("the sweep says that all went well")
		}
		if w.srv.Len() != 1 || w.srv.Used("host", "") != 1 {
			t.Error("the sandbox was let go of")
		}
		w.sweep()
		if w.srv.Len() != 0 || w.srv.Used("host", "") != 0 {
			t.Error("not stopped by the next sweep")
		}
	})
}

func TestAVerdictIsTakenAgainUnderTheHold(t *testing.T) { // R91
	inBubble(t, func(t *testing.T, w *world) {
		w.do("POST", "/v1/sandboxes", `{"id":"a","idle_timeout_ms":1000}`).want(t, 201, "")
		w.runner.set("a", wire.Activity{IdleMS: 5000})
		asked := w.runner.holdActivity()
		swept := make(chan error, 1)
		go func() { swept <- w.srv.Sweep(t.Context()) }()
		<-asked.came // for the verdict
		synctest.Wait()
		w.runner.nextActivity("a", wire.Activity{IdleMS: 5000}, wire.Activity{Running: 1})
		asked.release()
		if err := <-swept; err != nil {
			t.Fatal(err)
		}
		if n := w.engine.Calls("stop"); n != 0 || w.srv.Len() != 1 {
			t.Errorf("%d stops of a sandbox that had become busy, %d left", n, w.srv.Len())
		}
	})
}

func TestASweepDropsWhatTheBackendLacksAndFreesWhatItCounted(t *testing.T) { // R47
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		w.create("b")
		w.create("c")
		w.be.Remove("a")
		w.be.Kill("b")
		w.sweep()
		if got := w.srv.Registered(); len(got) != 1 || got["c"] == "" || w.srv.Used("host", "") != 1 {
			t.Errorf("registered %v, %d counted", got, w.srv.Used("host", ""))
		}
	})
}

func TestAListThatFailsOrIsCutShortDropsNothing(t *testing.T) { // R13, R87
	for _, fault := range []memory.Fault{
		{Call: "list", Err: errors.New("boom")},
		{Call: "list", Partial: true},
		{Call: "list", Hang: true},
	} {
		inBubble(t, func(t *testing.T, w *world) {
			for _, id := range []string{"a", "b", "c", "d"} {
				w.create(id)
			}
			lift := w.engine.Inject(fault)
			defer lift()
			_ = w.srv.Sweep(t.Context())
			if n, used := w.srv.Len(), w.srv.Used("host", ""); n != 4 || used != 4 {
				t.Errorf("%d registered, %d counted, want 4", n, used)
			}
		})
	}
}

func TestASilentRunnerIsNoReasonToDropWhileTheBackendCannotBeAskedAboutIt(t *testing.T) { // R16, R47
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		w.runner.deafen("a", true)
		lift := w.engine.Inject(memory.Fault{Call: "list", ID: "a", Err: errors.New("boom")}) // the list of everything works
		w.sweep()
		if n, used := w.srv.Len(), w.srv.Used("host", ""); n != 1 || used != 1 {
			t.Errorf("%d registered, %d counted, want the entry kept", n, used)
		}
		lift()
	})
}

func TestAPassThatCouldNotListStopsNothingAndTheNextOneDoes(t *testing.T) { // R13
	inBubble(t, func(t *testing.T, w *world) {
		w.do("POST", "/v1/sandboxes", `{"id":"a","ttl_ms":1000}`).want(t, 201, "")
		time.Sleep(time.Hour)
		w.engine.Inject(memory.Fault{Call: "list", Times: 1, Err: errors.New("boom")})
		if err := w.srv.Sweep(t.Context()); err == nil || !strings.Contains(err.Error(), "boom") {
			t.Errorf("the pass said %v", err)
		}
		if n := w.engine.Calls("stop"); n != 0 || w.srv.Len() != 1 {
			t.Errorf("%d stops, %d registered after a list that failed", n, w.srv.Len())
		}
		w.sweep()
		if w.srv.Len() != 0 {
			t.Error("the next pass did not stop it either")
		}
	})
}

func TestWhenMostIsAbsentNothingIsDropped(t *testing.T) { // R90
	inBubble(t, func(t *testing.T, w *world) {
		for _, id := range []string{"a", "b", "c", "d"} {
			w.create(id)
		}
		for _, id := range []string{"a", "b", "c"} {
			w.be.Remove(id)
		}
		if err := w.srv.Sweep(t.Context()); err == nil {
			t.Error("the sweep says nothing of it")
		}
		if n := w.srv.Len(); n != 4 {
			t.Errorf("%d registered, want 4", n)
		}
	})
}

func TestWhenMostIsListedAsStoppedThatIsBelieved(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, id := range []string{"a", "b", "c", "d"} {
			w.create(id)
			w.be.Kill(id)
		}
		w.sweep()
		if n, used := w.srv.Len(), w.srv.Used("host", ""); n != 0 || used != 0 {
			t.Errorf("%d registered, %d counted, want none", n, used)
		}
	})
}

func TestRunAdoptsAtOnceAndSweepsAtItsPace(t *testing.T) { // R14
	inBubble(t, func(t *testing.T, w *world) {
		w.outside("a")
		mend := w.engine.Break()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); w.srv.Run(ctx) }()
		synctest.Wait()
		if n := w.engine.Calls("list"); n != 1 {
			t.Errorf("%d lists at the start, want 1", n)
		}
		mend()
		time.Sleep(time.Minute + time.Second)
		if w.srv.Len() != 1 || w.srv.Used("host", "") != 1 {
			t.Errorf("%d registered after the next sweep", w.srv.Len())
		}
		w.runner.set("a", wire.Activity{IdleMS: time.Hour.Milliseconds()})
		time.Sleep(48 * time.Hour)
		if w.srv.Len() != 1 {
			t.Error("stopped, though it has neither lifetime nor idle timeout")
		}
		cancel()
		<-ended
	})
}

func TestAnInjectedClockDrivesLifetimes(t *testing.T) {
	mock := clock.NewMock()
	w := newWorldOn(t, mock, func(cfg *refserver.Config) { cfg.Clock = mock })
	w.do("POST", "/v1/sandboxes", `{"id":"a","ttl_ms":1000}`).want(t, 201, "")
	mock.Add(time.Second)
	w.sweep()
	if w.srv.Len() != 1 {
		t.Error("stopped at its boundary")
	}
	mock.Add(time.Millisecond)
	w.sweep()
	if w.srv.Len() != 0 {
		t.Error("not stopped past its lifetime")
	}
}
