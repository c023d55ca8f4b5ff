package refserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver"
)

const adminToken = "the-admin-token"

// world is a server over an engine in memory, whose sandboxes are all served by one stub runner.
type world struct {
	t      testing.TB
	clock  *clock.Mock
	runner *stubRunner
	be     *memory.Backend
	engine *memory.Engine
	srv    *refserver.Server
	url    string
}

// newWorld returns a world; change, where given, adjusts the server's Config.
func newWorld(t testing.TB, change ...func(*refserver.Config)) *world {
	t.Helper()
	w := &world{t: t, clock: clock.NewMock(), runner: newStubRunner(t)}
	w.clock.Set(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	w.be = memory.New(memory.Config{Endpoint: w.runner.open, Ended: w.runner.end, Clock: w.clock})
	w.engine = w.be.Engine()
	w.srv, w.url = w.replica(change...)
	return w
}

// replica returns one more server over the same engine.
func (w *world) replica(change ...func(*refserver.Config)) (*refserver.Server, string) {
	w.t.Helper()
	cfg := refserver.Config{
		Backend: w.be, BackendName: "memory", Token: adminToken, Key: []byte("0123456789abcdef0123456789abcdef"), Clock: w.clock, Version: "v9",
	}
	for _, f := range change {
		f(&cfg)
	}
	return serve(w.t, cfg)
}

func serve(t testing.TB, cfg refserver.Config) (*refserver.Server, string) {
	t.Helper()
	srv, err := refserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	hs := httptest.NewServer(srv.Handler())
	t.Cleanup(func() {
		hs.CloseClientConnections()
		hs.Close()
		srv.Close()
	})
	return srv, hs.URL
}

// answer is what a request came to.
type answer struct {
	status int
	header http.Header
	raw    string
	body   map[string]any // where it is a JSON object
}

func (a answer) code() string { s, _ := a.body["code"].(string); return s }

func (a answer) str(name string) string { s, _ := a.body[name].(string); return s }

// want fails the test unless the answer has this status and, where one is given, this code.
func (a answer) want(t testing.TB, status int, code string) answer {
	t.Helper()
	if a.status != status || a.code() != code {
		t.Fatalf("answered %d %q, want %d %q: %s", a.status, a.code(), status, code, a.raw)
	}
	if status >= 400 && a.str("error") == "" {
		t.Fatalf("answer %d has no error text: %s", status, a.raw)
	}
	return a
}

// do sends a request as the admin.
func (w *world) do(method, path, body string) answer {
	w.t.Helper()
	return w.as("Authorization", "Bearer "+adminToken, method, path, body)
}

// as sends a request with one header.
func (w *world) as(header, value, method, path, body string) answer {
	w.t.Helper()
	a, err := send(w.t.Context(), w.url, header, value, method, path, body)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

func send(ctx context.Context, url, header, value, method, path, body string) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if header != "" {
		r.Header.Set(header, value)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	a := answer{status: resp.StatusCode, header: resp.Header, raw: string(raw)}
	_ = json.Unmarshal(raw, &a.body)
	return a, err
}

// later sends a request as the admin and returns where its answer will be.
func (w *world) later(method, path, body string) <-chan answer {
	ch := make(chan answer, 1)
	go func() {
		a, err := send(w.t.Context(), w.url, "Authorization", "Bearer "+adminToken, method, path, body)
		if err != nil {
			a = answer{raw: err.Error()}
		}
		ch <- a
	}()
	return ch
}

// create makes a sandbox and returns the answer.
func (w *world) create(id string) answer {
	w.t.Helper()
	return w.do("POST", "/v1/sandboxes", fmt.Sprintf(`{"id":%q}`, id)).want(w.t, 201, "")
}

func (w *world) get(id string) answer     { w.t.Helper(); return w.do("GET", "/v1/sandboxes/"+id, "") }
func (w *world) destroy(id string) answer { w.t.Helper(); return w.do("DELETE", "/v1/sandboxes/"+id, "") }
func (w *world) stop(id string) answer {
	w.t.Helper()
	return w.do("POST", "/v1/sandboxes/"+id+":stop", "")
}

// exec runs a request through the data plane that any runner of a living sandbox answers with 200.
func (w *world) exec(id string) answer {
	w.t.Helper()
	return w.do("POST", "/v1/sandboxes/"+id+"/exec", `{"cmd":"true"}`)
}

// outside makes a running sandbox that the server has not heard of, as another replica does.
func (w *world) outside(id string) backend.Sandbox {
	w.t.Helper()
	sb, err := w.be.Create(w.t.Context(), backend.Spec{Ref: backend.Ref{ID: id, Instance: "outside-" + id}, Tenant: "default"})
	if err != nil {
		w.t.Fatal(err)
	}
	return sb
}

// within fails the test when cond does not come true.
func within(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
		runtime.Gosched()
	}
}

// gate holds calls of the backend until it is opened, and tells how many have come.
type gate struct {
	came chan struct{} // one value a call
	open chan struct{}
	once sync.Once
}

func newGate() *gate { return &gate{came: make(chan struct{}, 1000), open: make(chan struct{})} }

func (g *gate) pass(ctx context.Context) error {
	g.came <- struct{}{}
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gate) release() { g.once.Do(func() { close(g.open) }) }

// hold makes the calls of this kind wait at a gate.
func (w *world) hold(call string) *gate {
	g := newGate()
	lift := w.engine.Inject(memory.Fault{Call: call, Do: g.pass})
	w.t.Cleanup(func() { lift(); g.release() })
	return g
}

// stubRunner stands for the runners of all sandboxes. It knows which it serves and refuses the rest, like a real one; what it
// does beyond activity is what a test gives it.
type stubRunner struct {
	addr  string
	token string

	mu    sync.Mutex // guards the fields below
	boxes map[string]wire.Activity
	deaf  map[string]bool // of these nothing is answered but 500
	serve func(http.ResponseWriter, *http.Request)
	seen  []string // method and path of what was served
}

func newStubRunner(t testing.TB) *stubRunner {
	s := &stubRunner{token: "runner-token", boxes: map[string]wire.Activity{}, deaf: map[string]bool{}}
	hs := httptest.NewServer(s)
	s.addr = strings.TrimPrefix(hs.URL, "http://")
	t.Cleanup(func() { hs.CloseClientConnections(); hs.Close() })
	return s
}

// open and end are the hooks of the engine.
func (s *stubRunner) open(_ context.Context, sb backend.Sandbox) (backend.Endpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boxes[sb.ID] = wire.Activity{}
	return backend.Endpoint{Network: "tcp", Address: s.addr, Token: s.token}, nil
}

func (s *stubRunner) end(r backend.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.boxes, r.ID)
}

// set says what goes on in a sandbox; deafen makes its runner useless.
func (s *stubRunner) set(id string, a wire.Activity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boxes[id] = a
}

func (s *stubRunner) deafen(id string, deaf bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf[id] = deaf
}

// handle gives the stub an answer to everything but activity.
func (s *stubRunner) handle(f func(http.ResponseWriter, *http.Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serve = f
}

// requests returns what was served, activity apart.
func (s *stubRunner) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.seen...)
}

func (s *stubRunner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/sandboxes/"), "/")
	s.mu.Lock()
	act, known := s.boxes[id]
	deaf, handler := s.deaf[id], s.serve
	if rest != "activity" {
		s.seen = append(s.seen, r.Method+" "+r.URL.RequestURI())
	}
	s.mu.Unlock()
	switch {
	case deaf:
		panic(http.ErrAbortHandler)
	case r.Header.Get("Authorization") != "Bearer "+s.token:
		reply(w, 401, wire.Error{Error: "wrong token", Code: wire.CodeUnauthorized})
	case !known:
		reply(w, 404, wire.Error{Error: "no such sandbox", Code: wire.CodeNotFound})
	case rest == "activity":
		reply(w, 200, act)
	case handler != nil:
		handler(w, r)
	case rest == "exec":
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", wire.StreamType)
		_, _ = io.WriteString(w, `{"event":"start","id":"p"}`+"\n"+`{"event":"exit","exit_code":0}`+"\n")
	default:
		_, _ = io.Copy(io.Discard, r.Body)
		reply(w, 200, wire.Done{OK: true})
	}
}

func reply(w http.ResponseWriter, status int, v any) {
	var b bytes.Buffer
	_ = json.NewEncoder(&b).Encode(v)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}
