package refserver_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver"
	"github.com/keepwell-go/keepwell/refserver/binding"
)

// begin records a start that is due now.
func (w *world) begin(ref backend.Ref, id string) {
	w.t.Helper()
	err := w.srv.Bindings().Begin(w.ctx, binding.Start{Ref: ref, ID: id, At: time.Now(), Expires: time.Now().Add(binding.Lifetime)})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) retain() {
	w.t.Helper()
	if err := w.srv.Retain(w.ctx); err != nil {
		w.t.Fatal(err)
	}
}

// refs returns how many incarnations have rows.
func (w *world) refs() int {
	w.t.Helper()
	refs, err := w.srv.Bindings().Refs(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return len(refs)
}

// after runs retention when d has passed.
func (w *world) after(d time.Duration) {
	w.t.Helper()
	time.Sleep(d)
	w.retain()
}

func TestAStartIsKeptForAnHourAfterItExpired(t *testing.T) { // R77
	legacyBubble(t, func(t *testing.T, w *world, store *counted, ref backend.Ref) {
		w.begin(ref, "proc_unbound")
		w.after(25*time.Hour - time.Millisecond)
		if w.refs() != 1 {
			t.Error("it was pruned within the hour")
		}
		w.after(time.Millisecond)
		if w.refs() != 0 {
			t.Error("it was not pruned after the hour")
		}
	})
}

// ends makes the stub answer with what ends a process.
func ends(w *world) {
	w.runner.handle(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch {
		case r.URL.Path == "/v1/sandboxes/a/exec", r.Method == http.MethodGet && r.URL.Path != "/v1/sandboxes/a/processes/proc_x":
			rw.Header().Set("Content-Type", wire.StreamType)
			_, _ = io.WriteString(rw, `{"event":"start","id":"proc_x"}`+"\n"+`{"event":"exit","exit_code":0}`+"\n")
		case r.Method == http.MethodGet:
			reply(rw, 200, wire.Process{ID: "proc_x"})
		case r.Method == http.MethodDelete:
			reply(rw, 200, wire.Killed{ID: "proc_x"})
		default:
			reply(rw, 200, wire.Signaled{ID: "proc_x"})
		}
	})
}

func TestAnEndThatWasSeenIsKeptForAnHour(t *testing.T) { // R77
	for name, seen := range map[string]struct {
		method, path, body string
		ended              bool
	}{
		"exec":   {"POST", "exec", `{"id":"proc_x","cmd":"true"}`, true},
		"get":    {"GET", "processes/proc_x", "", true},
		"kill":   {"DELETE", "processes/proc_x", "", true},
		"output": {"GET", "processes/proc_x/output?follow=1", "", true},
		"signal": {"POST", "processes/proc_x:signal", `{"signal":"TERM"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			legacyBubble(t, func(t *testing.T, w *world, _ *counted, ref backend.Ref) {
				ends(w)
				w.begin(ref, "proc_x")
				if err := w.srv.Bindings().Bind(w.ctx, ref, "proc_x", "proc_x"); err != nil {
					t.Fatal(err)
				}
				w.do(seen.method, "/v1/sandboxes/a/"+seen.path, seen.body).want(t, 200, "")
				w.after(time.Hour - time.Millisecond)
				if w.refs() != 1 {
					t.Error("it was pruned within the hour")
				}
				w.after(time.Millisecond)
				if pruned := w.refs() == 0; pruned != seen.ended {
					t.Errorf("after the hour pruned %t, want %t", pruned, seen.ended)
				}
			})
		})
	}
}

func TestABindingLastsAsLongAsItsSandbox(t *testing.T) { // R76
	legacyBubble(t, func(t *testing.T, w *world, store *counted, ref backend.Ref) {
		w.do("POST", "/v1/sandboxes", `{"id":"other"}`).want(t, 201, "")
		w.begin(ref, "proc_x")
		w.begin(ref, "proc_live")
		store.bind(w, ref, "proc_x", "minted")
		w.stop("a").want(t, 200, "")
		w.after(100 * time.Hour)
		if got := w.boundTo(ref, "proc_x"); got != "minted" {
			t.Errorf("long after it expired, proc_x is bound to %q", got)
		}
		w.destroy("a").want(t, 200, "")
		if got := w.boundTo(ref, "proc_x"); got != "" || w.refs() != 0 {
			t.Errorf("after the destroy proc_x is bound to %q, %d incarnations have rows", got, w.refs())
		}
	})
}

func TestRowsOfWhatNoListHasAreForgotten(t *testing.T) { // R76
	legacyBubble(t, func(t *testing.T, w *world, store *counted, ref backend.Ref) {
		gone, earlier := backend.Ref{ID: "gone", Instance: "i"}, backend.Ref{ID: "a", Instance: "i"}
		recent := backend.Ref{ID: "elsewhere", Instance: "i"}
		for _, r := range []backend.Ref{ref, gone, earlier} {
			w.begin(r, "proc_x")
			store.bind(w, r, "proc_x", "minted")
		}
		stranger := binding.Scope(store, "another-installation")
		if err := stranger.Bind(w.ctx, gone, "proc_x", "theirs"); err != nil {
			t.Fatal(err)
		}
		w.after(time.Hour - time.Millisecond)
		if w.refs() != 3 {
			t.Errorf("of 3 recent incarnations %d have rows", w.refs())
		}
		time.Sleep(time.Minute)
		w.begin(recent, "proc_x")
		mend := w.engine.Inject(memory.Fault{Call: "list", Partial: true})
		w.retain()
		mend()
		if w.refs() != 4 {
			t.Errorf("after an incomplete list %d of 4 incarnations have rows", w.refs())
		}
		w.retain()
		if w.refs() != 2 || w.boundTo(ref, "proc_x") != "minted" {
			t.Errorf("%d incarnations have rows, want what lives and what is recent", w.refs())
		}
		if got, err := stranger.Bound(w.ctx, gone, "proc_x"); got != "theirs" || err != nil {
			t.Errorf("the row of another installation is %q, %v", got, err)
		}
	})
}

func TestServersOfOtherBackendsForgetNothingOfEachOther(t *testing.T) { // R76
	legacyBubble(t, func(t *testing.T, w *world, store *counted, ref backend.Ref) {
		w.begin(ref, "proc_x")
		store.bind(w, ref, "proc_x", "minted")
		other, _ := w.replica("b", store.use, func(cfg *refserver.Config) { // as from the same state directory, key and all
			cfg.Backend, cfg.BackendName = memory.New(memory.Config{}), "other"
		})
		time.Sleep(2 * time.Hour)
		if err := other.Retain(w.ctx); err != nil {
			t.Fatal(err)
		}
		if got := w.boundTo(ref, "proc_x"); got != "minted" {
			t.Errorf("proc_x is bound to %q", got)
		}
	})
}

func TestRetentionRunsByItself(t *testing.T) { // R77
	store := newCounted()
	inBubble(t, func(t *testing.T, w *world) {
		w.begin(backend.Ref{ID: "gone", Instance: "i"}, "proc_x")
		ctx, cancel := context.WithCancel(w.ctx)
		ran := make(chan struct{})
		go func() { defer close(ran); w.srv.Run(ctx) }()
		time.Sleep(25*time.Hour + 11*time.Minute)
		if w.refs() != 0 {
			t.Error("nothing was pruned")
		}
		cancel()
		<-ran
	}, store.use)
}

func TestAStoreThatIsDownFailsARetentionThatLosesNothing(t *testing.T) {
	legacyBubble(t, func(t *testing.T, w *world, store *counted, ref backend.Ref) {
		w.begin(ref, "proc_x")
		store.bind(w, ref, "proc_x", "minted")
		store.down.Store(true)
		if err := w.srv.Retain(w.ctx); err == nil {
			t.Error("retention says that it went well")
		}
		store.down.Store(false)
		if w.boundTo(ref, "proc_x") != "minted" {
			t.Error("the binding is lost")
		}
	})
}
