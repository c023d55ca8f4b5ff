package refserver_test

import (
	"errors"
	"testing"

	"github.com/keepwell-go/keepwell/backend/memory"
)

// inState fails the test unless the sandboxes in a state are these, without a question to the backend.
func (w *world) inState(query, want string) answer {
	w.t.Helper()
	before := w.engine.Calls("list")
	got := w.do("GET", "/v1/sandboxes?state="+query, "").want(w.t, 200, "")
	if ids := idsOf(w.t, got); ids != want {
		w.t.Errorf("state=%s lists %q, want %q", query, ids, want)
	}
	if n := w.engine.Calls("list") - before; n != 0 {
		w.t.Errorf("state=%s made %d lists", query, n)
	}
	return got
}

func TestASandboxThatIsBeingCreatedIsListedAsThat(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		creates := w.hold("create")
		made := w.later("POST", "/v1/sandboxes", `{"id":"a","tenant":"blue","ttl_ms":60000,"env":{"K":"v"}}`)
		<-creates.came
		w.do("POST", "/v1/sandboxes", `{"id":"b"}`).want(t, 429, "quota_exceeded")
		listed := w.inState("creating", "a").body["sandboxes"].([]any)[0].(map[string]any)
		w.inState("creating&tenant=blue", "a")
		w.inState("creating&tenant=red", "")
		w.inState("running", "")
		w.inState("destroying", "")
		creates.release()
		got := (<-made).want(t, 201, "")
		for name, want := range map[string]any{
			"state": "creating", "tenant": "blue", "profile": "default", "instance": got.str("instance"),
			"created_at_ms": got.body["created_at_ms"], "expires_at_ms": got.body["expires_at_ms"],
		} {
			if listed[name] != want {
				t.Errorf("%s was listed as %v, want %v", name, listed[name], want)
			}
		}
		w.inState("creating", "")
		w.inState("running", "a")
	}, oneSandbox)
}

func TestASandboxThatIsBeingDestroyedIsListedAsThat(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		w.create("b")
		w.stop("b").want(t, 200, "")
		destroys := w.hold("destroy")
		first, second := w.later("DELETE", "/v1/sandboxes/a", ""), w.later("DELETE", "/v1/sandboxes/b", "")
		<-destroys.came
		<-destroys.came
		w.inState("destroying", "a b")
		w.inState("running", "")
		w.inState("creating", "")
		destroys.release()
		(<-first).want(t, 200, "")
		(<-second).want(t, 200, "")
		w.inState("destroying", "")
	})
}

func TestWhatFailsIsNeitherListedAsBeingCreatedNorAsBeingDestroyed(t *testing.T) {
	for name, fault := range map[string]memory.Fault{"fails": {Err: errors.New("boom")}, "panics": {Panic: "boom"}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.create("a")
				for _, fault.Call = range []string{"create", "destroy"} {
					w.engine.Inject(fault)
				}
				if got := w.do("POST", "/v1/sandboxes", `{"id":"b"}`); got.status < 500 {
					t.Errorf("create answered %s", got.raw)
				}
				if got := w.destroy("a"); got.status < 500 {
					t.Errorf("destroy answered %s", got.raw)
				}
				w.inState("creating", "")
				w.inState("destroying", "")
				w.inState("running", "a")
			})
		})
	}
}
