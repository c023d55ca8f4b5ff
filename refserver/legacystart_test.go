package refserver_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// legacyBubble runs a test with a world in virtual time whose runner is of protocol 1, and a sandbox called a.
func legacyBubble(t *testing.T, test func(t *testing.T, w *world, store *counted, ref backend.Ref)) {
	t.Helper()
	store := newCounted()
	inBubble(t, func(t *testing.T, w *world) {
		w.runner.speak(1)
		w.create("a")
		test(t, w, store, backend.Ref{ID: "a", Instance: w.srv.Registered()["a"]})
	}, store.use)
}

// boundTo returns what an id is bound to.
func (w *world) boundTo(ref backend.Ref, id string) string {
	w.t.Helper()
	got, err := w.srv.Bindings().Bound(w.ctx, ref, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

func TestABindingIsWrittenAlsoWhenTheClientHasGone(t *testing.T) { // R108
	for path, reply := range map[string]func(http.ResponseWriter){
		"processes": func(w http.ResponseWriter) { reply(w, 200, wire.Started{ID: "minted", PID: 7}) },
		"exec": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", wire.StreamType)
			_, _ = io.WriteString(w, `{"event":"start","id":"minted","pid":7}`+"\n")
			_ = http.NewResponseController(w).Flush()
		},
	} {
		t.Run(path, func(t *testing.T) {
			legacyBubble(t, func(t *testing.T, w *world, _ *counted, ref backend.Ref) {
				g, hungUp := newGate(), make(chan struct{})
				w.runner.handle(func(rw http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					_ = g.pass(r.Context())
					if r.Context().Err() != nil {
						return // the server gave up, and the process runs without a name
					}
					reply(rw)
					if path == "exec" {
						<-r.Context().Done() // the runner, for its part, learns that nobody reads
					}
					close(hungUp)
				})
				leave := w.leaver("POST", "/v1/sandboxes/a/"+path, `{"id":"proc_x","cmd":"sleep 100"}`)
				<-g.came
				leave()
				synctest.Wait()
				g.release()
				<-hungUp
				synctest.Wait()
				if got := w.boundTo(ref, "proc_x"); got != "minted" {
					t.Errorf("proc_x is bound to %q", got)
				}
			})
		})
	}
}

func TestAnIDThatTheRunnerKeptIsPassedOnWithAndWithoutABinding(t *testing.T) { // R69
	w, store, ref := legacyWorld(t)
	w.runner.handle(func(rw http.ResponseWriter, r *http.Request) {
		reply(rw, 200, wire.Process{ID: strings.TrimPrefix(r.URL.Path, "/v1/sandboxes/a/processes/"), Running: true})
	})
	store.bind(w, ref, "proc_self", "proc_self")
	for _, id := range []string{"proc_unbound", "proc_self", "anything"} {
		if got := w.do("GET", "/v1/sandboxes/a/processes/"+id, "").want(t, 200, ""); got.str("id") != id {
			t.Errorf("%s is answered with %s", id, got.raw)
		}
	}
	w.runner.handle(func(rw http.ResponseWriter, _ *http.Request) { reply(rw, 200, wire.Started{ID: "proc_y"}) })
	if got := w.do("POST", "/v1/sandboxes/a/processes", `{"id":"proc_y","cmd":"true"}`).want(t, 200, ""); got.str("id") != "proc_y" {
		t.Errorf("a start whose id the runner kept answers %s", got.raw)
	}
	if got := w.boundTo(ref, "proc_y"); got != "proc_y" {
		t.Errorf("it is bound to %q", got)
	}
}

func TestTheRunnerLearnsThatNobodyReadsAnExecAnyMore(t *testing.T) {
	legacyBubble(t, func(t *testing.T, w *world, _ *counted, _ backend.Ref) {
		hungUp := make(chan struct{})
		w.runner.handle(func(rw http.ResponseWriter, r *http.Request) {
			defer close(hungUp)
			hangUntil(nil)(rw, r)
		})
		leave := w.leaver("POST", "/v1/sandboxes/a/exec", `{"cmd":"sleep 100","kill_on_disconnect":true}`)
		synctest.Wait() // the client has the start, and nothing more is to come
		leave()
		<-hungUp
	})
}

func TestAStartThatHangsIsGivenUpInTheEnd(t *testing.T) {
	for path, begin := range map[string]func(http.ResponseWriter){
		"processes": func(http.ResponseWriter) {},
		"exec": func(w http.ResponseWriter) { // a stream, whose first line does not come
			w.Header().Set("Content-Type", wire.StreamType)
			_ = http.NewResponseController(w).Flush()
		},
	} {
		t.Run(path, func(t *testing.T) {
			legacyBubble(t, func(t *testing.T, w *world, _ *counted, _ backend.Ref) {
				w.runner.handle(func(rw http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					begin(rw)
					<-r.Context().Done()
				})
				began := time.Now()
				got := w.do("POST", "/v1/sandboxes/a/"+path, `{"cmd":"true"}`).want(t, 503, "runner_lost")
				if !strings.HasSuffix(got.str("error"), "whether it has started the process is not known") || !strings.HasPrefix(got.str("id"), "proc_") {
					t.Errorf("told %s", got.raw)
				}
				if took := time.Since(began); took != 30*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

func TestWhatCannotBeBoundIsNotLeftRunning(t *testing.T) { // R74
	legacyBubble(t, func(t *testing.T, w *world, store *counted, ref backend.Ref) {
		starts := 0
		w.runner.handle(func(rw http.ResponseWriter, r *http.Request) {
			switch r.Method {
			case http.MethodDelete:
				reply(rw, 200, wire.Killed{Killed: true})
			case http.MethodPost:
				starts++
				reply(rw, 200, wire.Started{ID: fmt.Sprintf("minted-%d", starts), PID: 7})
			default: // it forgets a moment later
				reply(rw, 200, wire.Process{ID: "minted-1"})
			}
		})
		start := func(id string) answer {
			return w.do("POST", "/v1/sandboxes/a/processes", `{"id":"`+id+`","cmd":"true"}`)
		}
		start("proc_x").want(t, 200, "")
		if got := start("proc_x").want(t, 409, "duplicate"); !strings.Contains(got.str("error"), "proc_x") {
			t.Errorf("a conflict is told as %s", got.raw)
		}
		store.failBind.Store(true)
		start("proc_y").want(t, 503, "store_unavailable")
		var killed []string
		for _, rq := range w.runner.requests() {
			if id, ok := strings.CutPrefix(rq, "DELETE /v1/sandboxes/a/processes/"); ok {
				killed = append(killed, id)
			}
		}
		if fmt.Sprint(killed) != "[minted-2 minted-3]" {
			t.Errorf("killed %q, want the second and the third", killed)
		}
		if got := w.boundTo(ref, "proc_x"); got != "minted-1" {
			t.Errorf("proc_x is bound to %q", got)
		}
	})
}

func TestAStoreThatIsDownIsInTheWayOfNothingElse(t *testing.T) {
	legacyBubble(t, func(t *testing.T, w *world, store *counted, ref backend.Ref) {
		w.runner.handle(func(rw http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/processes"):
				reply(rw, 200, []wire.Process{{ID: "minted"}})
			default:
				reply(rw, 200, wire.Killed{ID: "minted", Killed: true})
			}
		})
		store.bind(w, ref, "proc_x", "minted")
		store.down.Store(true)
		before := len(w.runner.requests())
		for _, rq := range [][3]string{
			{"GET", "/processes/proc_x", ""},
			{"DELETE", "/processes/proc_x", ""},
			{"POST", "/processes/proc_x:kill", ""},
			{"POST", "/processes/proc_x:signal", `{"signal":"TERM"}`},
			{"GET", "/processes/proc_x/output", ""},
			{"POST", "/processes/proc_x/stdin", `{"data":"x"}`},
			{"POST", "/processes", `{"cmd":"true"}`},
			{"POST", "/exec", `{"cmd":"true"}`},
		} {
			got := w.do(rq[0], "/v1/sandboxes/a"+rq[1], rq[2]).want(t, 503, "store_unavailable")
			if got.header.Get("Retry-After") == "" || strings.Contains(got.raw, errStoreDown.Error()) {
				t.Errorf("%s %s: %v %s", rq[0], rq[1], got.header, got.raw)
			}
		}
		if got := w.runner.requests()[before:]; len(got) != 0 {
			t.Errorf("without the store the runner was asked for %q", got)
		}
		w.do("GET", "/v1/sandboxes/a/processes", "").want(t, 503, "store_unavailable")
		w.do("GET", "/v1/sandboxes/a/processes/minted", "").want(t, 200, "")
		w.do("GET", "/v1/sandboxes/a/files/stat?path=x", "").want(t, 200, "")
		w.get("a").want(t, 200, "")
		w.create("b")
		w.destroy("a").want(t, 200, "")
		if got := w.do("GET", "/health", "").want(t, 200, ""); got.str("status") != "ok" || got.body["store"].(map[string]any)["ok"] != false {
			t.Errorf("health is %s", got.raw)
		}
		store.down.Store(false)
		w.do("POST", "/v1/sandboxes/b/processes", `{"cmd":"true"}`).want(t, 200, "")
	})
}

func TestARunnerThatIsTooOldOrTooNewIsRefusedByName(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, protocol := range []int{-1, 0, wire.Protocol + 1} {
			w.runner.speak(protocol)
			got := w.do("POST", "/v1/sandboxes", `{"id":"a"}`).want(t, 502, "create_failed")
			if want := fmt.Sprintf("speaks protocol %d, this server speaks 1 to 2", protocol); !strings.Contains(got.str("error"), want) {
				t.Errorf("told %s, want %q", got.raw, want)
			}
			if left, err := w.be.List(w.ctx); err != nil || len(left.Sandboxes) != 0 || w.srv.Used("host", "") != 0 {
				t.Errorf("there is left %+v, %v; counted %d", left, err, w.srv.Used("host", ""))
			}
			other := w.outside("b")
			w.do("POST", "/v1/sandboxes/b/exec", `{"cmd":"true"}`).want(t, 503, "backend_unavailable")
			if out, err := w.be.Destroy(w.ctx, other.Ref); out != backend.Stopped || err != nil {
				t.Errorf("destroyed: %v, %v", out, err)
			}
		}
	})
}

func TestABodyThatIsNoStartIsForTheRunnerToRefuse(t *testing.T) {
	g, store := legacyGuests(t)
	for _, body := range []string{
		"", "{", `{"cmd":7}`, `{"cmd":"true","id":"12"}`, `{"cmd":"true","id":"proc_/"}`, `{"cmd":"true"} x`,
		`{"cmd":"true","id":"proc_` + strings.Repeat("a", 80) + `"}`,
	} {
		if got := g.do("POST", "/v1/sandboxes/a/processes", body); got.status != 400 {
			t.Errorf("%q: %d %s", body, got.status, got.raw)
		}
	}
	huge := `{"cmd":"true","tag":"` + strings.Repeat("x", wire.MaxBody) + `"}`
	g.do("POST", "/v1/sandboxes/a/processes", huge).want(t, 413, "payload_too_large")
	g.do("POST", "/v1/sandboxes/a/exec", `{"cmd":["/no/such/program"]}`).want(t, 400, "cannot_start")
	if n, err := store.Prune(t.Context(), time.Now()); n == 0 || err != nil {
		t.Errorf("%d starts that were refused had ended, %v", n, err)
	}
	if refs, err := store.Refs(t.Context()); len(refs) != 0 || err != nil {
		t.Errorf("rows of %v are left, %v", refs, err)
	}
}
