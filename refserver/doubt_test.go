package refserver_test

import (
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend/memory"
)

// slow makes the create of a outlast its budget of 180 s; the engine finishes it later all the same.
func (w *world) slow(finish time.Duration) {
	w.t.Helper()
	w.engine.Inject(memory.Fault{Call: "create", ID: "a", Times: 1, Delay: finish, Deaf: true})
	w.do("POST", "/v1/sandboxes", `{"id":"a"}`).want(w.t, 502, "create_failed")
	if used := w.srv.Used("host", ""); used != 1 {
		w.t.Errorf("%d counted while the engine may still be at it", used)
	}
}

func TestACreateWithoutAnAnswerIsCountedOnceWhenItAppears(t *testing.T) { // R102
	inBubble(t, func(t *testing.T, w *world) {
		w.slow(200 * time.Second) // the budget is 180 s
		w.sweep()                 // nothing there yet: still counted
		w.do("POST", "/v1/sandboxes", `{"id":"b"}`).want(t, 429, "quota_exceeded")
		time.Sleep(30 * time.Second)
		w.get("a").want(t, 200, "")
		w.exec("a").want(t, 200, "")
		if used := w.srv.Used("host", ""); used != 1 {
			t.Errorf("%d counted, want it once", used)
		}
		w.destroy("a").want(t, 200, "")
		w.create("b")
	}, oneSandbox)
}

func TestACreateWithoutAnAnswerIsFreedWhenItNeverAppears(t *testing.T) { // R102
	inBubble(t, func(t *testing.T, w *world) {
		w.engine.Inject(memory.Fault{Call: "create", ID: "a", Times: 1, Hang: true})
		w.do("POST", "/v1/sandboxes", `{"id":"a"}`).want(t, 502, "create_failed")
		w.sweep()
		w.do("POST", "/v1/sandboxes", `{"id":"b"}`).want(t, 429, "quota_exceeded")
		time.Sleep(3 * time.Minute)
		w.sweep()
		w.create("b")
	}, oneSandbox)
}

func TestAResumeWithoutAnAnswerIsFreedWhenItNeverHappens(t *testing.T) { // R102
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		w.stop("a").want(t, 200, "")
		w.engine.Inject(memory.Fault{Call: "create", ID: "a", Times: 1, Hang: true})
		w.do("POST", "/v1/sandboxes", `{"id":"a"}`).want(t, 502, "create_failed")
		w.sweep()
		w.do("POST", "/v1/sandboxes", `{"id":"b"}`).want(t, 429, "quota_exceeded")
		time.Sleep(3 * time.Minute)
		w.sweep()
		w.create("b")
		w.get("a").want(t, 404, "stopped")
	}, oneSandbox)
}

func TestARetryThatComesAndGoesDoesNotSettleTheCreateItRepeats(t *testing.T) { // R102
	inBubble(t, func(t *testing.T, w *world) {
		w.slow(240 * time.Second)
		w.create("a")
		w.destroy("a").want(t, 200, "")
		w.sweep()
		w.do("POST", "/v1/sandboxes", `{"id":"b"}`).want(t, 429, "quota_exceeded") // the first may still come
		time.Sleep(61 * time.Second)
		w.get("a").want(t, 200, "")
		w.destroy("a").want(t, 200, "")
		w.create("b")
	}, oneSandbox)
}

func TestACreateWithoutAnAnswerCanBeRetried(t *testing.T) { // R102
	inBubble(t, func(t *testing.T, w *world) {
		w.engine.Inject(memory.Fault{Call: "create", ID: "a", Times: 1, Hang: true})
		w.do("POST", "/v1/sandboxes", `{"id":"a"}`).want(t, 502, "create_failed")
		w.get("a").want(t, 404, "not_found")
		w.create("a")
		if used := w.srv.Used("host", ""); used != 1 {
			t.Errorf("%d counted", used)
		}
	}, oneSandbox)
}
