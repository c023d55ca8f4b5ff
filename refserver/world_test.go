package refserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
	"github.com/keepwell-go/keepwell/refserver"
)

const adminToken = "the-admin-token"

// tester is what a world asks of a test, of a benchmark or of one run of a property.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Error(args ...any)
	Fatalf(format string, args ...any)
	Fatal(args ...any)
	Cleanup(func())
}

// world is a server over an engine in memory, whose sandboxes are all served by one stub runner. All of it speaks over a network
// in memory, so that a world in a synctest bubble lives in virtual time.
type world struct {
	t      tester
	ctx    context.Context // of the requests
	net    network
	runner *stubRunner
	be     *memory.Backend
	engine *memory.Engine
	srv    *refserver.Server
	client *http.Client
	url    string
}

// inBubble runs a test with a world in virtual time; change, where given, adjusts the server's Config.
func inBubble(t *testing.T, test func(t *testing.T, w *world), change ...func(*refserver.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // net/http's own linger after a refusal
		test(t, newWorld(t, change...))
	})
}

func newWorld(t tester, change ...func(*refserver.Config)) *world {
	t.Helper()
	return newWorldOn(t, nil, change...)
}

// newWorldOn is newWorld with an engine on a clock of its own.
func newWorldOn(t tester, c clock.Clock, change ...func(*refserver.Config)) *world {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, runner: newStubRunner()}
	t.Cleanup(w.net.listen("runner", w.runner))
	w.be = memory.New(memory.Config{Endpoint: w.runner.open, Ended: w.runner.end, Clock: c})
	w.engine = w.be.Engine()
	tr := &http.Transport{DialContext: w.net.dial}
	w.client = &http.Client{Transport: tr}
	t.Cleanup(tr.CloseIdleConnections)
	w.srv, w.url = w.replica("a", change...)
	return w
}

// replica returns one more server over the same engine.
func (w *world) replica(name string, change ...func(*refserver.Config)) (*refserver.Server, string) {
	w.t.Helper()
	cfg := refserver.Config{
		Backend: w.be, BackendName: "memory", Token: adminToken, Key: []byte("0123456789abcdef0123456789abcdef"), Version: "v9",
	}
	for _, f := range change {
		f(&cfg)
	}
	srv, err := refserver.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	srv.Dial(w.net.dial)
	shut := w.net.listen("replica-"+name, srv.Handler())
	w.t.Cleanup(func() { shut(); srv.Close() })
	return srv, "http://replica-" + name
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
func (a answer) want(t tester, status int, code string) answer {
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
	a, err := w.send(w.ctx, w.url, header, value, method, path, body)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

func (w *world) send(ctx context.Context, url, header, value, method, path, body string) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if header != "" {
		r.Header.Set(header, value)
	}
	return w.answerTo(r)
}

func (w *world) answerTo(r *http.Request) (answer, error) {
	resp, err := w.client.Do(r)
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
		a, err := w.send(w.ctx, w.url, "Authorization", "Bearer "+adminToken, method, path, body)
		if err != nil {
			a = answer{raw: err.Error()}
		}
		ch <- a
	}()
	return ch
}

// leaver sends a request as the admin, whose client hangs up when the function it returns is called.
func (w *world) leaver(method, path, body string) (leave func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	go func() { _, _ = w.send(ctx, w.url, "Authorization", "Bearer "+adminToken, method, path, body) }()
	return cancel
}

// create makes a sandbox and returns the answer.
func (w *world) create(id string) answer {
	w.t.Helper()
	return w.do("POST", "/v1/sandboxes", fmt.Sprintf(`{"id":%q}`, id)).want(w.t, 201, "")
}

func (w *world) get(id string) answer { w.t.Helper(); return w.do("GET", "/v1/sandboxes/"+id, "") }
func (w *world) destroy(id string) answer {
	w.t.Helper()
	return w.do("DELETE", "/v1/sandboxes/"+id, "")
}

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
	sb, err := w.be.Create(w.ctx, backend.Spec{Ref: backend.Ref{ID: id, Instance: "outside-" + id}, Tenant: "default"})
	if err != nil {
		w.t.Fatal(err)
	}
	return sb
}

// idsOf returns the ids of a list answer, in its order.
func idsOf(t tester, a answer) string {
	t.Helper()
	list, ok := a.body["sandboxes"].([]any)
	if !ok {
		t.Fatalf("no list of sandboxes: %s", a.raw)
	}
	var ids []string
	for _, sb := range list {
		ids = append(ids, sb.(map[string]any)["id"].(string))
	}
	return strings.Join(ids, " ")
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

func newRequest(url, method, path string) (*http.Request, error) {
	return http.NewRequest(method, url+path, nil)
}
