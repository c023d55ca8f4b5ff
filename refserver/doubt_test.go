package refserver_test

import (
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend/memory"
)

func TestACreateWithoutAnAnswerIsUnknownAndALaterListDecides(t *testing.T) { // R102
	slow := func(w *world, finish time.Duration) {
		w.engine.Inject(memory.Fault{Call: "create", ID: "a", Times: 1, Delay: finish, Deaf: true})
		got := w.do("POST", "/v1/sandboxes", `{"id":"a"}`).want(w.t, 502, "create_failed")
		if got.str("outcome") != "" {
			w.t.Errorf("answered %s", got.raw)
		}
		if used := w.srv.Used("host", ""); used != 1 {
			w.t.Errorf("%d counted while the engine may still be at it", used)
		}
	}
	sweep := func(w *world) {
		if err := w.srv.Sweep(w.ctx); err != nil {
			w.t.Errorf("sweep: %v", err)
		}
	}
	t.Run("it_appears", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			slow(w, 200*time.Second) // the budget is 180 s
			sweep(w)                 // nothing there yet: still counted
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
	})
	t.Run("it_never_appears", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.engine.Inject(memory.Fault{Call: "create", ID: "a", Times: 1, Hang: true})
			w.do("POST", "/v1/sandboxes", `{"id":"a"}`).want(t, 502, "create_failed")
			sweep(w)
			w.do("POST", "/v1/sandboxes", `{"id":"b"}`).want(t, 429, "quota_exceeded")
			time.Sleep(3 * time.Minute)
			sweep(w)
			w.create("b")
		}, oneSandbox)
	})
	t.Run("the_resume_never_happens", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.create("a")
			w.stop("a").want(t, 200, "")
			w.engine.Inject(memory.Fault{Call: "create", ID: "a", Times: 1, Hang: true})
			w.do("POST", "/v1/sandboxes", `{"id":"a"}`).want(t, 502, "create_failed")
			sweep(w)
			w.do("POST", "/v1/sandboxes", `{"id":"b"}`).want(t, 429, "quota_exceeded")
			time.Sleep(3 * time.Minute)
			sweep(w)
			w.create("b")
			w.get("a").want(t, 404, "stopped")
		}, oneSandbox)
	})
	t.Run("a_retry_comes_and_goes_first", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			slow(w, 240*time.Second)
			w.create("a")
			w.destroy("a").want(t, 200, "")
			sweep(w)
			w.do("POST", "/v1/sandboxes", `{"id":"b"}`).want(t, 429, "quota_exceeded") // the first may still come
			time.Sleep(61 * time.Second)
			w.get("a").want(t, 200, "")
			w.destroy("a").want(t, 200, "")
			w.create("b")
		}, oneSandbox)
	})
	t.Run("it_is_retried", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.engine.Inject(memory.Fault{Call: "create", ID: "a", Times: 1, Hang: true})
			w.do("POST", "/v1/sandboxes", `{"id":"a"}`).want(t, 502, "create_failed")
			w.get("a").want(t, 404, "not_found")
			w.create("a")
			if used := w.srv.Used("host", ""); used != 1 {
				t.Errorf("%d counted", used)
			}
		}, oneSandbox)
	})
}
