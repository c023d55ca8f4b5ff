package refserver_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
	"github.com/keepwell-go/keepwell/refserver"
)

func TestACreatedSandboxCanBeUsedListedStoppedResumedAndDestroyed(t *testing.T) {
	inBubble(t, createUseStopResumeDestroy)
}

func createUseStopResumeDestroy(t *testing.T, w *world) {
	made := w.create("a")
	if made.body["resumed"] != false || made.str("token") == "" || made.str("state") != "running" {
		t.Errorf("create answered %s", made.raw)
	}
	w.get("a").want(t, 200, "")
	w.exec("a").want(t, 200, "")
	if got := w.stop("a").want(t, 200, ""); got.str("outcome") != "stopped" {
		t.Errorf("stop answered %s", got.raw)
	}
	w.get("a").want(t, 404, "stopped")
	w.exec("a").want(t, 404, "stopped")
	if again := w.create("a"); again.body["resumed"] != true || again.str("instance") == made.str("instance") {
		t.Errorf("resume answered %s", again.raw)
	}
	if got := w.destroy("a").want(t, 200, ""); got.body["deleted"] != true || got.str("outcome") != "stopped" {
		t.Errorf("destroy answered %s", got.raw)
	}
	w.get("a").want(t, 404, "not_found")
	w.destroy("a").want(t, 404, "not_found")
}

func TestACreateOfAnIDWhoseSandboxHasDiedIsNoDuplicate(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		w.be.Remove("a")
		w.create("a")
		w.be.Kill("a")
		if got := w.create("a"); got.body["resumed"] != true {
			t.Errorf("answered %s", got.raw)
		}
		if used := w.srv.Used("host", ""); used != 1 {
			t.Errorf("%d counted", used)
		}
	}, oneSandbox)
}

func TestWhatCannotBeReachedAfterItsCreateIsUndoneByTheVerbThatFits(t *testing.T) { // R30
	for _, c := range []struct {
		name                     string
		resumed                  bool
		stops, destroys, survive int
	}{
		{"fresh", false, 0, 1, 0},
		{"resumed", true, 1, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				if c.resumed {
					w.outside("a")
					if err := w.be.WriteFile("a", "work", []byte("mine")); err != nil {
						t.Fatal(err)
					}
					w.be.Kill("a")
				}
				w.runner.deafen("a", true)
				w.do("POST", "/v1/sandboxes", `{"id":"a"}`).want(t, 502, "create_failed")
				if s, d := w.engine.Calls("stop"), w.engine.Calls("destroy"); s != c.stops || d != c.destroys {
					t.Errorf("%d stops and %d destroys, want %d and %d", s, d, c.stops, c.destroys)
				}
				_, err := w.be.ReadFile("a", "work")
				if survived := err == nil; survived != (c.survive == 1) {
					t.Errorf("the workspace survived: %t (%v)", survived, err)
				}
				if used := w.srv.Used("host", ""); used != 0 {
					t.Errorf("%d counted", used)
				}
			})
		})
	}
}

func TestAResumeWithoutAnAnswerIsStoppedAndNeverDestroyed(t *testing.T) { // R30
	inBubble(t, func(t *testing.T, w *world) {
		w.outside("a")
		if err := w.be.WriteFile("a", "work", []byte("mine")); err != nil {
			t.Fatal(err)
		}
		w.be.Kill("a")
		w.engine.Inject(memory.Fault{Call: "create", Times: 1, After: true, Err: errors.New("the answer was lost")})
		w.do("POST", "/v1/sandboxes", `{"id":"a"}`).want(t, 502, "create_failed")
		if s, d := w.engine.Calls("stop"), w.engine.Calls("destroy"); s != 1 || d != 0 {
			t.Errorf("%d stops and %d destroys, want one stop", s, d)
		}
		if data, err := w.be.ReadFile("a", "work"); err != nil || string(data) != "mine" {
			t.Errorf("workspace: %q, %v", data, err)
		}
	})
}

func TestTheCallersLeavingDoesNotStopACreate(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		creates := w.hold("create")
		leave := w.leaver("POST", "/v1/sandboxes", `{"id":"a"}`)
		<-creates.came
		leave()
		synctest.Wait()
		creates.release()
		synctest.Wait()
		w.get("a").want(t, 200, "")
		if n := w.engine.Calls("destroy") + w.engine.Calls("stop"); n != 0 {
			t.Errorf("undone %d times", n)
		}
	})
}

func TestLifetimesAreBoundedByTheServersOwn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const day, half = int64(24 * time.Hour / time.Millisecond), int64(30 * time.Minute / time.Millisecond)
		for _, c := range []struct {
			body      string
			ttl, idle int64
		}{
			{`{}`, day, half},
			{`{"ttl_ms":1000,"idle_timeout_ms":500}`, 1000, 500},
			{fmt.Sprintf(`{"ttl_ms":%d,"idle_timeout_ms":%d}`, day+1, half+1), day, half},
			{`{"ttl_ms":9223372036854775807}`, day, half},
		} {
			got := w.do("POST", "/v1/sandboxes", c.body).want(t, 201, "")
			ttl := int64(got.body["expires_at_ms"].(float64) - got.body["created_at_ms"].(float64))
			if idle := int64(got.body["idle_timeout_ms"].(float64)); ttl != c.ttl || idle != c.idle {
				t.Errorf("%s: lifetime %d ms and idle timeout %d ms, want %d and %d", c.body, ttl, idle, c.ttl, c.idle)
			}
			if id := got.str("id"); !strings.HasPrefix(id, "sbx-") || backend.CheckID(id) != nil {
				t.Errorf("minted the id %q", id)
			}
		}
		if got := w.do("POST", "/v1/sandboxes", `{"pinned":true}`).want(t, 201, ""); got.body["expires_at_ms"] != 0.0 || got.body["pinned"] != true {
			t.Errorf("a pinned one expires: %s", got.raw)
		}
	})
}

func TestWhatACreateAsksForReachesTheBackend(t *testing.T) {
	var got backend.Spec
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(cfg *refserver.Config) { cfg.Backend = spy{cfg.Backend, &got} })
		w.do("POST", "/v1/sandboxes", `{"id":"a","tenant":"T","profile":"agent","image":"img","env":{"K":"v"},
			"limits":{"memory_mb":7,"cpus":1.5,"pids":9},"ttl_ms":60000,"idle_timeout_ms":30000,"pinned":true}`).want(t, 201, "")
	})
	want := backend.Spec{
		Ref: got.Ref, Tenant: "T", Profile: "agent", Image: "img", Env: map[string]string{"K": "v"},
		MemoryMB: 7, CPUs: 1.5, PIDs: 9, TTL: time.Minute, Idle: 30 * time.Second, Pinned: true,
	}
	if !reflect.DeepEqual(got, want) || got.ID != "a" || got.Instance == "" {
		t.Errorf("the backend was asked for %+v, want %+v", got, want)
	}
}

func TestACreateThatNamesAnImageIsRefusedWhereThereAreNone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		got := w.do("POST", "/v1/sandboxes", `{"id":"a","image":"img:1"}`).want(t, 400, "bad_request")
		if text := got.str("error"); !strings.Contains(text, `"img:1"`) || !strings.Contains(text, `"memory"`) {
			t.Errorf("it says %q, which lacks the image or the backend", text)
		}
		if n := w.engine.Calls("create"); n != 0 {
			t.Errorf("%d creates reached the backend", n)
		}
		w.do("POST", "/v1/sandboxes", `{"id":"a","image":""}`).want(t, 201, "")
	}, func(cfg *refserver.Config) { cfg.NoImages = true })
}

// spy notes the last spec that was asked for.
type spy struct {
	backend.Backend
	last *backend.Spec
}

func (s spy) Create(ctx context.Context, spec backend.Spec) (backend.Sandbox, error) {
	*s.last = spec
	return s.Backend.Create(ctx, spec)
}
