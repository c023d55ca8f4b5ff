package refserver_test

import (
	"strings"
	"testing"
)

// silence makes the runner of a not answer, and goes on with a server that has just begun.
func (w *world) silence(replica string) {
	w.t.Helper()
	w.runner.deafen("a", true)
	w.srv, w.url = w.replica(replica, oneSandbox)
}

func TestASandboxThatRunsAndDoesNotAnswerIsSaidToDoSo(t *testing.T) { // R16
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		w.silence("b")
		for _, got := range []answer{w.get("a"), w.exec("a")} {
			if got.want(t, 503, "backend_unavailable"); !strings.Contains(got.str("error"), `"a" runs, but its runner`) {
				t.Errorf("answered %s", got.raw)
			}
		}
		w.runner.deafen("a", false)
		w.runner.speak(99)
		if got := w.get("a").want(t, 503, "backend_unavailable"); !strings.Contains(got.str("error"), "speaks protocol 99") {
			t.Errorf("answered %s", got.raw)
		}
	})
}

// Nobody needs the runner to end a sandbox, so one whose runner is stuck can be got rid of, also after a restart. // R31, R83
func TestASandboxThatRunsAndDoesNotAnswerCanBeStoppedAndDestroyed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		w.silence("b")
		w.do("DELETE", "/v1/sandboxes/a?if_idle=1", "").want(t, 409, "busy")
		fail := w.engine.Break()
		w.destroy("a").want(t, 503, "backend_unavailable")
		fail()
		if got := w.stop("a").want(t, 200, ""); got.str("outcome") != "stopped" {
			t.Errorf("stop answered %s", got.raw)
		}
		w.get("a").want(t, 404, "stopped")
		w.runner.deafen("a", false)
		if got := w.create("a"); got.body["resumed"] != true {
			t.Errorf("create answered %s", got.raw)
		}
		w.silence("c")
		if got := w.destroy("a").want(t, 200, ""); got.str("outcome") != "stopped" {
			t.Errorf("destroy answered %s", got.raw)
		}
		w.get("a").want(t, 404, "not_found")
		if counted, silent := len(w.srv.Counted()), w.srv.Silent(); counted+silent != 0 {
			t.Errorf("%d counted, %d remembered as silent", counted, silent)
		}
	})
}

func TestASilentSandboxThatIsFoundStoppedIsNotRememberedAsSilent(t *testing.T) { // R102
	inBubble(t, func(t *testing.T, w *world) {
		w.sweep()
		w.runner.deafen("x", true)
		w.outside("x")
		w.do("GET", "/v1/sandboxes?fresh=1", "").want(t, 200, "") // finds it, and counts nothing
		if n := w.srv.Silent(); n != 1 {
			t.Fatalf("%d are remembered", n)
		}
		w.be.Kill("x")
		w.sweep()
		if n := w.srv.Silent(); n != 0 {
			t.Errorf("%d are remembered", n)
		}
	})
}
