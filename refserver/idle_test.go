package refserver_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

func TestIfIdleSparesWhatIsBusyOrCannotBeAsked(t *testing.T) { // R31
	for _, c := range []struct {
		name string
		make func(w *world)
		why  string
	}{
		{"process", func(w *world) { w.runner.set("a", wire.Activity{Running: 1}) }, "1 processes"},
		{"request_elsewhere", func(w *world) { w.runner.set("a", wire.Activity{Pins: 1}) }, "1 requests"},
		{"runner_silent", func(w *world) { w.runner.deafen("a", true) }, "could not be asked"},
		{"runner_forgot", func(w *world) { w.runner.end(backend.Ref{ID: "a"}) }, "could not be asked"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.create("a")
				c.make(w)
				got := w.do("DELETE", "/v1/sandboxes/a?if_idle=1", "").want(t, 409, "busy")
				if !strings.Contains(got.str("error"), c.why) {
					t.Errorf("answered %s, want it to say %q", got.raw, c.why)
				}
				if n := w.engine.Calls("destroy"); n != 0 {
					t.Errorf("destroyed %d times", n)
				}
				if w.srv.Len() != 1 || w.srv.Used("host", "") != 1 {
					t.Error("the sandbox was let go of")
				}
				w.runner.deafen("a", false)
				w.runner.set("a", wire.Activity{})
				w.do("DELETE", "/v1/sandboxes/a?if_idle=1", "").want(t, 200, "")
			})
		})
	}
}

func TestAConditionThatIsNotUnderstoodDestroysNothing(t *testing.T) { // R31
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		for _, query := range []string{"?if_idle", "?if_idle=", "?if_idle=yes", "?if_idle=2", "?if_idle=1;x=1", "?if_idle=%zz"} {
			w.do("DELETE", "/v1/sandboxes/a"+query, "").want(t, 400, "bad_request")
		}
		if n := w.engine.Calls("destroy"); n != 0 {
			t.Errorf("destroyed %d times", n)
		}
	})
}

func TestIfIdleSeesARequestThatIsUnderWayHere(t *testing.T) { // R31
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		hang := make(chan struct{})
		w.runner.handle(hangUntil(hang))
		running := w.later("POST", "/v1/sandboxes/a/exec", `{"cmd":"sleep 9"}`)
		synctest.Wait()
		w.do("DELETE", "/v1/sandboxes/a?if_idle=1", "").want(t, 409, "busy")
		close(hang)
		(<-running).want(t, 200, "")
		w.do("DELETE", "/v1/sandboxes/a?if_idle=1", "").want(t, 200, "")
	})
}

func TestAPlainDestroyThatJoinedOneForIdleSandboxesIsNotRefusedAsBusy(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		w.runner.set("a", wire.Activity{Running: 1})
		asked := w.runner.holdActivity()
		gentle := w.later("DELETE", "/v1/sandboxes/a?if_idle=1", "")
		<-asked.came
		plain := w.later("DELETE", "/v1/sandboxes/a", "")
		synctest.Wait()
		asked.release()
		(<-gentle).want(t, 409, "busy")
		(<-plain).want(t, 200, "")
	})
}
