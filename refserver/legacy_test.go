package refserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver"
	"github.com/keepwell-go/keepwell/refserver/binding"
)

// counted is a store that counts what it is asked, and fails on demand.
type counted struct {
	binding.Store
	reads, writes atomic.Int64
	down          atomic.Bool
	failBind      atomic.Bool
}

var errStoreDown = errors.New("the store is down")

func newCounted() *counted { return &counted{Store: binding.NewMemory()} }

func (c *counted) use(cfg *refserver.Config) { cfg.Bindings = c }

func (c *counted) count(n *atomic.Int64) error {
	n.Add(1)
	if c.down.Load() {
		return errStoreDown
	}
	return nil
}

func (c *counted) Begin(ctx context.Context, s binding.Start) error {
	if err := c.count(&c.writes); err != nil {
		return err
	}
	return c.Store.Begin(ctx, s)
}

func (c *counted) Bind(ctx context.Context, ref backend.Ref, id, bound string) error {
	if err := c.count(&c.writes); err != nil || c.failBind.Load() {
		return errStoreDown
	}
	return c.Store.Bind(ctx, ref, id, bound)
}

func (c *counted) End(ctx context.Context, ref backend.Ref, id string, at time.Time) error {
	if err := c.count(&c.writes); err != nil {
		return err
	}
	return c.Store.End(ctx, ref, id, at)
}

func (c *counted) Forget(ctx context.Context, ref backend.Ref) error {
	if err := c.count(&c.writes); err != nil {
		return err
	}
	return c.Store.Forget(ctx, ref)
}

func (c *counted) Bound(ctx context.Context, ref backend.Ref, id string) (string, error) {
	if err := c.count(&c.reads); err != nil {
		return "", err
	}
	return c.Store.Bound(ctx, ref, id)
}

func (c *counted) Public(ctx context.Context, ref backend.Ref, bound []string) (map[string]string, error) {
	if err := c.count(&c.reads); err != nil {
		return nil, err
	}
	return c.Store.Public(ctx, ref, bound)
}

func (c *counted) Ping(ctx context.Context) error {
	if c.down.Load() {
		return errStoreDown
	}
	return c.Store.Ping(ctx)
}

func (c *counted) Refs(ctx context.Context) (map[backend.Ref]time.Time, error) {
	if c.down.Load() {
		return nil, errStoreDown
	}
	return c.Store.Refs(ctx)
}

// asked returns how many reads there were since it was called last.
func (c *counted) asked() int64 { return c.reads.Swap(0) }

// legacyGuests is a server over a real runner of protocol 1, with a sandbox called a.
func legacyGuests(t testing.TB) (*guests, *counted) {
	t.Helper()
	store := newCounted()
	g := newGuestsOf(t, 1, store.use)
	g.create("a")
	return g, store
}

// guest starts a process behind the server's back, and returns the id that the runner gave it.
func (g *guests) guest(key string) string {
	g.t.Helper()
	var got wire.Started
	a := g.direct("POST", "/v1/sandboxes/a/processes", `{"cmd":"sleep 100","id":"`+key+`"}`)
	if err := json.Unmarshal([]byte(a), &got); err != nil || got.ID == "" || got.ID == key {
		g.t.Fatalf("the runner started %s: %v", a, err)
	}
	return got.ID
}

func (g *guests) listed(query string) (ids []string, next string) {
	g.t.Helper()
	a := g.do("GET", "/v1/sandboxes/a/processes"+query, "").want(g.t, 200, "")
	var list []wire.Process
	if err := json.Unmarshal([]byte(a.raw), &list); err != nil {
		g.t.Fatal(err)
	}
	for _, p := range list {
		ids = append(ids, p.ID)
	}
	return ids, a.header.Get(wire.NextCursor)
}

func TestAnAssignedIDReachesTheProcessOfARunnerThatNamesItself(t *testing.T) { // R67, R61, R68
	g, store := legacyGuests(t)
	for _, end := range []struct {
		method, path, body string
		answers            map[string]any
		signal             string
	}{
		{"POST", ":signal", `{"signal":"SIGUSR1"}`, map[string]any{"signaled": true}, "SIGUSR1"},
		{"POST", ":kill?grace=5", "", map[string]any{"killed": true}, "SIGTERM"},
		{"DELETE", "", "", map[string]any{"killed": true}, "SIGKILL"},
	} {
		p := g.start("a", `{"cmd":["sleep","100"],"tag":"mine"}`)
		path := "/v1/sandboxes/a/processes/" + p.ID
		if !strings.HasPrefix(p.ID, "proc_") || p.Tag != "mine" || p.PID == 0 {
			t.Fatalf("started %+v", p)
		}
		store.asked()
		if got := g.do("GET", path, "").want(t, 200, ""); got.str("id") != p.ID || got.body["running"] != true || got.body["pid"] != float64(p.PID) {
			t.Fatalf("get answers %s", got.raw)
		}
		got := g.do(end.method, path+end.path, end.body).want(t, 200, "")
		for name, want := range end.answers {
			if got.body[name] != want || got.str("id") != p.ID {
				t.Errorf("%s%s answers %s, want %s %v of %s", end.method, end.path, got.raw, name, want, p.ID)
			}
		}
		if reads := store.asked(); reads != 2 {
			t.Errorf("two requests took %d reads of the store", reads)
		}
		if _, last := g.stream(g.url, "GET", path+"/output?follow=1", "").rest(); last.Signal == nil || *last.Signal != end.signal {
			t.Errorf("%s%s: the process ended with %+v, want %s", end.method, end.path, last, end.signal)
		}
		if got := g.do("DELETE", path, "").want(t, 200, ""); got.body["killed"] != false || got.str("id") != p.ID {
			t.Errorf("a second kill answers %s", got.raw)
		}
		if got := g.do("GET", path, "").want(t, 200, ""); got.str("id") != p.ID || got.body["running"] != false {
			t.Errorf("after its end get answers %s", got.raw)
		}
	}
}

func TestStdinAndOutputGoByTheAssignedID(t *testing.T) { // R67
	g, _ := legacyGuests(t)
	p := g.start("a", `{"cmd":["cat"]}`)
	path := "/v1/sandboxes/a/processes/" + p.ID
	g.do("POST", path+"/stdin", `{"data":"hello","eof":true}`).want(t, 200, "")
	if out, last := g.stream(g.url, "GET", path+"/output?follow=1", "").rest(); out != "hello" || last.ExitCode == nil || *last.ExitCode != 0 {
		t.Errorf("read %q, then %+v", out, last)
	}
}

func TestExecTellsTheAssignedID(t *testing.T) { // R63, R67
	g, _ := legacyGuests(t)
	e := g.stream(g.url, "POST", "/v1/sandboxes/a/exec", `{"cmd":"echo hi; exec sleep 100"}`)
	start, _ := e.next()
	if start.Event != wire.EventStart || !strings.HasPrefix(start.ID, "proc_") || start.PID == 0 {
		t.Fatalf("exec began with %+v", start)
	}
	if out, _ := e.next(); out.Data != "hi\n" {
		t.Errorf("then came %+v", out)
	}
	if ids, _ := g.listed(""); len(ids) != 1 || ids[0] != start.ID {
		t.Errorf("listed %q, want %s alone", ids, start.ID)
	}
	if got := g.do("DELETE", "/v1/sandboxes/a/processes/"+start.ID, "").want(t, 200, ""); got.body["killed"] != true {
		t.Errorf("killed: %s", got.raw)
	}
	if _, last := e.rest(); last.Signal == nil {
		t.Errorf("the stream ended with %+v", last)
	}
}

func TestWhatIsNotBoundPassesThrough(t *testing.T) { // R69
	g, store := legacyGuests(t)
	guest := g.guest("a-key")
	store.asked()
	if got := g.do("GET", "/v1/sandboxes/a/processes/"+guest, "").want(t, 200, ""); got.str("id") != guest {
		t.Errorf("a process that nobody assigned an id is %s", got.raw)
	}
	if reads := store.asked(); reads != 0 {
		t.Errorf("an id of the runner's own took %d reads", reads)
	}
	g.do("GET", "/v1/sandboxes/a/processes/proc_unbound", "").want(t, 404, "not_found")
	if reads := store.asked(); reads != 1 {
		t.Errorf("an unbound id took %d reads", reads)
	}
	if got := g.do("DELETE", "/v1/sandboxes/a/processes/"+guest, "").want(t, 200, ""); got.body["killed"] != true {
		t.Errorf("killed by the runner's id: %s", got.raw)
	}
}

func TestARowOfAnotherSandboxIsNotAnAnswer(t *testing.T) { // R73
	g, _ := legacyGuests(t)
	g.create("b")
	p := g.start("a", `{"cmd":"sleep 100"}`)
	g.do("DELETE", "/v1/sandboxes/b/processes/"+p.ID, "").want(t, 404, "not_found")
	if got := g.do("GET", "/v1/sandboxes/a/processes/"+p.ID, "").want(t, 200, ""); got.body["running"] != true {
		t.Errorf("after a kill in another sandbox it is %s", got.raw)
	}
}

func TestARowOfAnotherIncarnationIsNotAskedFor(t *testing.T) { // R73
	w, store, ref := legacyWorld(t)
	store.bind(w, ref, "proc_x", "minted")
	w.runner.handle(noSuchProcess)
	w.create("b")
	w.stop("a").want(t, 200, "")
	w.create("a")
	for _, id := range []string{"a", "b"} {
		path := "/v1/sandboxes/" + id + "/processes/proc_x"
		w.do("GET", path, "").want(t, 404, "not_found")
		if asked := w.runner.requests(); asked[len(asked)-1] != "GET "+path {
			t.Errorf("the runner of %s was asked %q", id, asked[len(asked)-1])
		}
	}
}

func TestAStartWithoutANameIsRepeatedByTheIDItGot(t *testing.T) { // R75
	g, _ := legacyGuests(t)
	first := g.start("a", `{"cmd":"echo run >>runs; exec sleep 100"}`)
	again := g.start("a", `{"id":"`+first.ID+`","cmd":"echo run >>runs; exec sleep 100"}`)
	if again.ID != first.ID || again.PID != first.PID || !again.Reattached {
		t.Errorf("started %+v, then %+v", first, again)
	}
}

func TestARepeatedStartFindsTheProcess(t *testing.T) { // R75
	g, _ := legacyGuests(t)
	g.create("b")
	for _, id := range []string{"my-key", "proc_mine"} {
		body := `{"id":"` + id + `","cmd":"echo run >>` + id + `; echo out; exec sleep 100"}`
		first, second := g.start("a", body), g.start("a", body)
		if first.Reattached || !second.Reattached || first.ID != second.ID || first.PID != second.PID || !strings.HasPrefix(first.ID, "proc_") {
			t.Errorf("started %+v, then %+v", first, second)
		}
		if other := g.start("b", body); id == "my-key" && other.ID == first.ID {
			t.Errorf("the same key means %s in two sandboxes", other.ID)
		}
		if id == "proc_mine" && first.ID != id {
			t.Errorf("an assigned id came back as %s", first.ID)
		}
		e := g.stream(g.url, "POST", "/v1/sandboxes/a/exec", body)
		start, _ := e.next()
		out, _ := e.next()
		if start.ID != first.ID || out.Data != "out\n" {
			t.Errorf("a second attach began with %+v and %+v", start, out)
		}
		if runs, err := os.ReadFile(filepath.Join(g.dir, "a", id)); string(runs) != "run\n" {
			t.Errorf("it ran as %q, %v", runs, err)
		}
	}
}

// direct asks the runner of the guests behind the server's back.
func (g *guests) direct(method, path, body string) string {
	g.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer runner-token")
	w := httptest.NewRecorder()
	g.runner.Handler().ServeHTTP(w, r)
	return w.Body.String()
}
