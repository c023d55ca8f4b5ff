package refserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
	"github.com/keepwell-go/keepwell/backend/runner"
	"github.com/keepwell-go/keepwell/backend/runner/spawn"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver"
)

// guests is a server whose sandboxes run for real: one runner in this process serves them all, over a unix socket.
type guests struct {
	t      testing.TB
	dir    string
	be     *memory.Backend
	runner *runner.Server
	socket *httptest.Server
	srv    *refserver.Server
	url    string
}

func newGuests(t testing.TB, change ...func(*refserver.Config)) *guests {
	t.Helper()
	return newGuestsOf(t, wire.Protocol, change...)
}

// newGuestsOf is newGuests with a runner that speaks another protocol.
func newGuestsOf(t testing.TB, protocol int, change ...func(*refserver.Config)) *guests {
	t.Helper()
	dir, err := os.MkdirTemp("", "kwg") // short: the path of a socket has 108 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	sp, err := spawn.New(spawn.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sp.Close)
	g := &guests{t: t, dir: dir, runner: runner.New(runner.Config{Spawner: sp, Token: "runner-token", Protocol: protocol})}
	t.Cleanup(g.runner.Close)
	l, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	g.socket = &httptest.Server{Listener: l, Config: &http.Server{Handler: g.runner.Handler()}}
	g.socket.Start()
	t.Cleanup(func() { g.socket.CloseClientConnections(); g.socket.Close() })
	g.be = memory.New(memory.Config{Endpoint: g.open, Ended: g.end})
	g.srv, g.url = g.replica(change...)
	return g
}

func (g *guests) open(_ context.Context, sb backend.Sandbox) (backend.Endpoint, error) {
	home := filepath.Join(g.dir, sb.ID)
	if err := os.MkdirAll(home, 0o700); err != nil {
		return backend.Endpoint{}, err
	}
	ep := backend.Endpoint{Network: "unix", Address: filepath.Join(g.dir, "socket"), Token: "runner-token"}
	return ep, g.runner.Add(runner.Sandbox{ID: sb.ID, Home: home})
}

func (g *guests) end(r backend.Ref) {
	if err := g.runner.Remove(context.Background(), r.ID); err != nil {
		g.t.Errorf("remove: %v", err)
	}
}

// replica returns a server over the engine, as new as one that was just started.
func (g *guests) replica(change ...func(*refserver.Config)) (*refserver.Server, string) {
	g.t.Helper()
	cfg := refserver.Config{Backend: g.be, Token: adminToken, Key: []byte("0123456789abcdef")}
	for _, f := range change {
		f(&cfg)
	}
	srv, err := refserver.New(cfg)
	if err != nil {
		g.t.Fatal(err)
	}
	hs := httptest.NewServer(srv.Handler())
	g.t.Cleanup(func() { hs.CloseClientConnections(); hs.Close(); srv.Close() })
	return srv, hs.URL
}

// open sends a request and returns the answer unread.
func (g *guests) send(url, method, path, body string) *http.Response {
	g.t.Helper()
	r, err := http.NewRequest(method, url+path, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	return resp
}

func (g *guests) do(method, path, body string) answer {
	g.t.Helper()
	resp := g.send(g.url, method, path, body)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, raw: string(raw)}
	_ = json.Unmarshal(raw, &a.body)
	return a
}

func (g *guests) create(id string) {
	g.t.Helper()
	g.do("POST", "/v1/sandboxes", fmt.Sprintf(`{"id":%q}`, id)).want(g.t, 201, "")
}

// start starts a process in the background.
func (g *guests) start(id, body string) wire.Started {
	g.t.Helper()
	var p wire.Started
	a := g.do("POST", "/v1/sandboxes/"+id+"/processes", body).want(g.t, 200, "")
	if err := json.Unmarshal([]byte(a.raw), &p); err != nil || p.ID == "" {
		g.t.Fatalf("started %s: %v", a.raw, err)
	}
	return p
}

// events reads a stream.
type events struct {
	t     testing.TB
	body  io.ReadCloser
	lines *bufio.Scanner
}

func (g *guests) stream(url, method, path, body string) *events {
	g.t.Helper()
	resp := g.send(url, method, path, body)
	if resp.StatusCode != 200 {
		raw, _ := io.ReadAll(resp.Body)
		g.t.Fatalf("%s %s answered %d %s", method, path, resp.StatusCode, raw)
	}
	g.t.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, wire.MaxEvent)
	return &events{g.t, resp.Body, lines}
}

// next returns the next event, false at the end of the stream.
func (e *events) next() (ev wire.Event, ok bool) {
	e.t.Helper()
	if !e.lines.Scan() {
		if err := e.lines.Err(); err != nil {
			e.t.Fatalf("stream: %v", err)
		}
		return ev, false
	}
	if err := json.Unmarshal(e.lines.Bytes(), &ev); err != nil {
		e.t.Fatalf("event %q: %v", e.lines.Text(), err)
	}
	return ev, true
}

// rest returns what stdout carried up to the last event, and that.
func (e *events) rest() (out string, last wire.Event) {
	e.t.Helper()
	ends := 0
	for ev, ok := e.next(); ok; ev, ok = e.next() {
		switch ev.Event {
		case wire.EventStdout:
			out += ev.Data
		case wire.EventExit, wire.EventError:
			ends++
		}
		last = ev
	}
	if ends != 1 || last.Event != wire.EventExit && last.Event != wire.EventError {
		e.t.Errorf("the stream has %d last events and ends with %+v", ends, last)
	}
	return out, last
}
