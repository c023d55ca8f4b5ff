package refserver_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// sent returns how often the runner got a request of this method for a path that begins like this.
func (s *stubRunner) sent(method, path string) (n int) {
	for _, rq := range s.requests() {
		if strings.HasPrefix(rq, method+" /v1/sandboxes/a"+path) {
			n++
		}
	}
	return n
}

func TestARepeatedStartEndsNothingWhenTheStoreFails(t *testing.T) { // R75
	for path, started := range map[string]func(http.ResponseWriter){
		"processes": func(w http.ResponseWriter) { reply(w, 200, wire.Started{ID: "minted", PID: 7, Reattached: true}) },
		"exec": func(w http.ResponseWriter) { // which says nothing of being a second one
			w.Header().Set("Content-Type", wire.StreamType)
			_, _ = io.WriteString(w, `{"event":"start","id":"minted","pid":7}`+"\n"+exitLine)
		},
	} {
		t.Run(path, func(t *testing.T) {
			legacyBubble(t, func(t *testing.T, w *world, store *counted, ref backend.Ref) {
				w.runner.handle(func(rw http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodPost {
						started(rw)
						return
					}
					reply(rw, 200, wire.Process{ID: "minted", Running: true})
				})
				store.bind(w, ref, "proc_x", "minted")
				store.failBind.Store(true)
				got := w.do("POST", "/v1/sandboxes/a/"+path, `{"id":"proc_x","cmd":"sleep 100"}`).want(t, 200, "")
				if !strings.Contains(got.raw, `"id":"proc_x"`) || strings.Contains(got.raw, "minted") {
					t.Errorf("a repeated start is answered with %s", got.raw)
				}
				if n := w.runner.sent("DELETE", ""); n != 0 {
					t.Errorf("the process was killed, by %d requests", n)
				}
			})
		})
	}
}

func TestAStartThatFindsTheProcessOfAnotherOneDoesNotEndIt(t *testing.T) { // R75
	w, store, _ := legacyWorld(t)
	w.runner.handle(func(rw http.ResponseWriter, _ *http.Request) {
		reply(rw, 200, wire.Started{ID: "minted", PID: 7, Reattached: true}) // of a start on another replica, which is not bound yet
	})
	store.failBind.Store(true)
	w.do("POST", "/v1/sandboxes/a/processes", `{"id":"proc_x","cmd":"sleep 100"}`).want(t, 503, "store_unavailable")
	if n := w.runner.sent("DELETE", ""); n != 0 {
		t.Errorf("the process was killed, by %d requests", n)
	}
}

func TestWhatTheRunnerHasForgottenIsNotRunAgain(t *testing.T) { // R75
	w, store, ref := legacyWorld(t)
	w.runner.handle(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			reply(rw, 200, wire.Started{ID: "minted-2", PID: 7})
			return
		}
		noSuchProcess(rw, r)
	})
	store.bind(w, ref, "proc_x", "minted-1")
	got := w.do("POST", "/v1/sandboxes/a/processes", `{"id":"proc_x","cmd":"true"}`).want(t, 409, "duplicate")
	if !strings.Contains(got.str("error"), "process proc_x was started before") || w.runner.sent("POST", "/processes") != 0 {
		t.Errorf("told %s, after %q", got.raw, w.runner.requests())
	}
	w.do("POST", "/v1/sandboxes/a/processes", `{"id":"proc_y","cmd":"true"}`).want(t, 200, "")
}

func TestARepeatedStartThatIsRefusedIsNoEnd(t *testing.T) { // R77
	legacyBubble(t, func(t *testing.T, w *world, store *counted, ref backend.Ref) {
		w.runner.handle(func(rw http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				reply(rw, 400, wire.Error{Error: "cmd is missing or empty", Code: wire.CodeBadRequest})
				return
			}
			reply(rw, 200, wire.Process{ID: "proc_x", Running: true})
		})
		w.begin(ref, "proc_x")
		store.bind(w, ref, "proc_x", "proc_x")
		w.do("POST", "/v1/sandboxes/a/processes", `{"id":"proc_x"}`).want(t, 400, "bad_request")
		w.after(2 * time.Hour)
		if w.refs() != 1 {
			t.Error("the start of a process that runs was pruned")
		}
	})
}

func TestAnIDThatIsNoneOfARunnerIsNotForTheStore(t *testing.T) {
	w, store, ref := legacyWorld(t)
	w.lists("nul\x00", "a/../b", strings.Repeat("x", 4000), "12")
	store.asked()
	if got, _ := w.page(""); len(got) != 4 || store.asked() != 0 {
		t.Errorf("listed %.200q", got)
	}
	for _, id := range []string{"nul\x00", "../files", strings.Repeat("x", 4000), "12"} {
		w.runner.handle(func(rw http.ResponseWriter, _ *http.Request) { reply(rw, 200, wire.Started{ID: id}) })
		w.do("POST", "/v1/sandboxes/a/processes", `{"id":"proc_x","cmd":"true"}`).want(t, 503, "runner_lost")
		if got := w.boundTo(ref, "proc_x"); got != "" {
			t.Errorf("proc_x is bound to %.80q", got)
		}
	}
}

func TestAnAnswerAboutABoundProcessThatIsNoRecordIsPassedOn(t *testing.T) {
	w, store, ref := legacyWorld(t)
	store.bind(w, ref, "proc_x", "minted")
	for _, c := range []struct {
		status     int
		kind, body string
	}{{204, "", ""}, {500, "text/plain; charset=utf-8", "out of order\n"}, {200, "application/json", "null\n"}} {
		w.runner.handle(func(rw http.ResponseWriter, _ *http.Request) {
			if c.kind != "" {
				rw.Header().Set("Content-Type", c.kind)
			}
			rw.WriteHeader(c.status)
			_, _ = io.WriteString(rw, c.body)
		})
		got := w.do("DELETE", "/v1/sandboxes/a/processes/proc_x", "")
		if got.status != c.status || got.raw != c.body || got.header.Get("Content-Type") != c.kind {
			t.Errorf("%d %q became %d %q of type %q", c.status, c.body, got.status, got.raw, got.header.Get("Content-Type"))
		}
	}
}

func TestAFailureIsToldUnderTheIDThatWasAsked(t *testing.T) { // R68
	w, store, ref := legacyWorld(t)
	store.bind(w, ref, "proc_x", "minted")
	w.runner.handle(func(rw http.ResponseWriter, _ *http.Request) {
		reply(rw, 503, wire.Error{Error: "whether process minted is gone could not be told", Code: wire.CodeUnknown})
	})
	got := w.do("DELETE", "/v1/sandboxes/a/processes/proc_x", "").want(t, 503, "unknown")
	if got.str("error") != "whether process proc_x is gone could not be told" {
		t.Errorf("told %s", got.raw)
	}
}

func TestARefusalAboutABoundProcessIsHeardByAClientThatWaits(t *testing.T) {
	legacyBubble(t, func(t *testing.T, w *world, store *counted, ref backend.Ref) {
		store.bind(w, ref, "proc_x", "minted")
		w.runner.handle(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Connection", "close")
			reply(rw, 409, wire.Error{Error: "the process does not read its stdin any more", Code: wire.CodeStdinClosed})
		})
		conn, err := w.net.dial(t.Context(), "tcp", "replica-a:80")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /v1/sandboxes/a/processes/proc_x/stdin HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
			"Content-Length: 1000\r\n\r\n{", adminToken)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != 409 || !resp.Close {
			t.Errorf("answered %d, close %t", resp.StatusCode, resp.Close)
		}
	})
}

func TestALongFirstLineOfAnExecIsReadWhole(t *testing.T) { // R67
	w, _, ref := legacyWorld(t)
	long := strings.Repeat("x", 100<<10)
	w.runner.handle(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", wire.StreamType)
		_, _ = io.WriteString(rw, `{"event":"start","id":"minted","cmd":"`+long+`"}`+"\n"+exitLine)
	})
	got := w.do("POST", "/v1/sandboxes/a/exec", `{"id":"proc_x","cmd":"true"}`).want(t, 200, "")
	if !strings.Contains(got.raw, `"id":"proc_x"`) || !strings.Contains(got.raw, long) || !strings.HasSuffix(got.raw, exitLine) {
		t.Errorf("answered %d bytes: %.100s", len(got.raw), got.raw)
	}
	if got := w.boundTo(ref, "proc_x"); got != "minted" {
		t.Errorf("proc_x is bound to %q", got)
	}
}

func TestAFirstLineWithoutEndIsNotReadForEver(t *testing.T) {
	w, _, ref := legacyWorld(t)
	w.runner.handle(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", wire.StreamType)
		for {
			if _, err := io.CopyN(rw, spaces{}, 1<<20); err != nil {
				return
			}
		}
	})
	w.do("POST", "/v1/sandboxes/a/exec", `{"id":"proc_x","cmd":"true"}`).want(t, 503, "runner_lost")
	if got := w.boundTo(ref, "proc_x"); got != "" {
		t.Errorf("proc_x is bound to %q", got)
	}
}

// An answer that was lost is no reason to run a command twice: the start is repeated by the id that the failure tells.
func TestAStartInDoubtIsRepeatedByTheIDOfItsFailure(t *testing.T) { // R75
	w, _, ref := legacyWorld(t)
	keys, processes := make(chan string, 2), map[string]string{}
	w.runner.handle(func(rw http.ResponseWriter, r *http.Request) {
		var req wire.StartRequest
		_ = json.NewDecoder(r.Body).Decode(&req)
		key := req.ID
		if key == "" {
			key = r.Header.Get(wire.ProcessIDHeader)
		}
		keys <- key
		if processes[key] == "" {
			processes[key] = "minted"
			panic(http.ErrAbortHandler) // it has started the process, and the answer is lost
		}
		reply(rw, 200, wire.Started{ID: processes[key], PID: 7, Reattached: true})
	})
	id := w.do("POST", "/v1/sandboxes/a/processes", `{"cmd":"true"}`).want(t, 503, "runner_lost").str("id")
	again := w.do("POST", "/v1/sandboxes/a/processes", `{"id":"`+id+`","cmd":"true"}`).want(t, 200, "")
	if one, other := <-keys, <-keys; one != id || other != id {
		t.Errorf("the runner was asked for %q and %q, want %q", one, other, id)
	}
	if again.str("id") != id || again.body["reattached"] != true || w.boundTo(ref, id) != "minted" {
		t.Errorf("repeated as %q, it is %s", id, again.raw)
	}
}
