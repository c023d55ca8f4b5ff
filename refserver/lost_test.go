package refserver_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keepwell-go/keepwell/backend/memory"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver"
)

// breakOff makes the runner take requests and answer none of them once the gate is open.
func (w *world) breakOff() *gate {
	g := newGate()
	w.runner.handle(func(_ http.ResponseWriter, r *http.Request) {
		_ = g.pass(r.Context())
		panic(http.ErrAbortHandler)
	})
	return g
}

// says fails the test unless the error text has each of these in it.
func (a answer) says(t tester, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(a.str("error"), text) {
			t.Errorf("it says %q, want %q in it", a.str("error"), text)
		}
	}
}

// R16: what became of the sandbox meanwhile is said, rather than that the backend could not be asked.
func TestARequestWhoseSandboxIsCreatedAnewMeanwhileIsToldSo(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		runs := w.breakOff()
		lost := w.later("POST", "/v1/sandboxes/a/exec", `{"cmd":"true"}`)
		<-runs.came
		w.be.Kill("a")
		w.get("a").want(t, 404, "stopped")
		creates := w.hold("create")
		made := w.later("POST", "/v1/sandboxes", `{"id":"a"}`)
		<-creates.came
		runs.release()
		got := (<-lost).want(t, 503, "creating")
		got.says(t, `"a" is being created`, "whether it has started the process is not known")
		if got.header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After %q", got.header.Get("Retry-After"))
		}
		creates.release()
		(<-made).want(t, 201, "")
	})
}

// R16
func TestARequestWhoseSandboxHasMovedToARunnerThatIsSilentIsToldThatItRuns(t *testing.T) {
	var to atomic.Pointer[string]
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		runs := w.breakOff()
		lost := w.later("POST", "/v1/sandboxes/a/exec", `{"cmd":"true"}`)
		<-runs.came
		nowhere := "nowhere:80"
		to.Store(&nowhere)
		runs.release()
		(<-lost).want(t, 503, "backend_unavailable").says(t, `"a" runs, but its runner cannot be used`, "whether it has started the process is not known")
	}, func(cfg *refserver.Config) { cfg.Backend = mover{cfg.Backend.(*memory.Backend), &to} })
}

func TestASandboxWithoutARunnerIsNotSaidToBeCreatedWhileItIsStopped(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		w.silence("b")
		stops := w.hold("stop")
		stopped := w.later("POST", "/v1/sandboxes/a:stop", "")
		<-stops.came
		w.get("a").want(t, 503, "creating").says(t, `"a" is being stopped`)
		w.exec("a").want(t, 503, "creating").says(t, `"a" is being stopped`)
		stops.release()
		(<-stopped).want(t, 200, "")
		w.get("a").want(t, 404, "stopped")
	})
}

func TestASandboxWithoutARunnerIsNotSaidToBeCreatedWhileItIsLookedAt(t *testing.T) { // R31
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		w.silence("b")
		w.runner.deafen("a", false)
		w.runner.speak(99)
		w.runner.set("a", wire.Activity{Running: 1})
		first := w.runner.holdActivity() // whether it can be registered
		spared := w.later("DELETE", "/v1/sandboxes/a?if_idle=1", "")
		<-first.came
		second := w.runner.holdActivity() // whether it is idle
		first.release()
		<-second.came
		w.get("a").want(t, 503, "creating").says(t, `"a" is in other hands for a moment`)
		second.release()
		(<-spared).want(t, 409, "busy")
	})
}
