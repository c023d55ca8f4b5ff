package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/backend/docker"
	"github.com/keepwell-go/keepwell/backend/docker/enginetest"
	"github.com/keepwell-go/keepwell/refserver"
)

// shared is the Docker Engine of all tests here.
var shared enginetest.Shared

// siteToken opens the API of a site.
const siteToken = "the-admin-of-a-site"

// site is a server of this process on a Docker Engine, which it reaches through a proxy that can make it fail.
type site struct {
	t      testing.TB
	owner  string
	engine *enginetest.Engine
	proxy  *enginetest.Proxy
	be     *docker.Backend
	srv    *refserver.Server
	url    string
	client *http.Client
	clock  *ahead
	asked  atomic.Int64 // requests that have reached the API
}

// ahead is the real clock, but for what it says the time is.
type ahead struct {
	clock.Clock
	by atomic.Int64
}

func (a *ahead) Now() time.Time                  { return a.Clock.Now().Add(time.Duration(a.by.Load())) }
func (a *ahead) Since(t time.Time) time.Duration { return a.Now().Sub(t) }
func (a *ahead) Until(t time.Time) time.Duration { return t.Sub(a.Now()) }
func (s *site) dockerConfig(socket string) docker.Config {
	return docker.Config{
		Owner: s.owner, Key: []byte("the key of all these sites"), Runner: s.engine.Runner, Shell: staticShell(),
		Host: "unix://" + socket, Network: enginetest.Network,
	}
}

// newSite returns a server whose sweeps do not run yet. In the end nothing may be left of the owner.
func newSite(t testing.TB, owner string, change ...func(*refserver.Config)) *site {
	t.Helper()
	e := shared.Engine(t)
	s := &site{t: t, owner: owner, engine: e, proxy: enginetest.NewProxy(t, e), clock: &ahead{Clock: clock.New()}}
	t.Cleanup(func() { e.Clean(t, owner) })
	be, err := docker.Open(s.dockerConfig(s.proxy.Socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(be.Close)
	cfg := refserver.Config{
		Backend: be, BackendName: backendDocker, Token: siteToken, Key: []byte("0123456789abcdef0123456789abcdef"), Clock: s.clock,
	}
	for _, f := range change {
		f(&cfg)
	}
	if s.srv, err = refserver.New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.srv.Close)
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		s.srv.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(hs.Close)
	s.be, s.url = be, hs.URL
	s.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

// run lets the server sweep until the end of the test.
func (s *site) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var swept sync.WaitGroup
	swept.Go(func() { s.srv.Run(ctx) }) // ends with ctx
	s.t.Cleanup(func() { cancel(); swept.Wait() })
}

// reply is what a request came to.
type reply struct {
	status int
	raw    string
	body   map[string]any // where it is one JSON object
}

func (r reply) str(name string) string { v, _ := r.body[name].(string); return v }

// want fails the test unless the answer has this status and, where one is given, this code.
func (r reply) want(t testing.TB, status int, code string) reply {
	t.Helper()
	if r.status != status || r.str("code") != code {
		t.Errorf("answered %d %s, want %d %q", r.status, r.raw, status, code)
	}
	return r
}

func (s *site) do(method, path, body string) reply {
	s.t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, s.url+"/v1/sandboxes"+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+siteToken)
	resp, err := s.client.Do(r)
	if err != nil {
		s.t.Errorf("%s %s: %v", method, path, err)
		return reply{}
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Errorf("%s %s: %v", method, path, err)
	}
	got := reply{status: resp.StatusCode, raw: string(raw)}
	_ = json.Unmarshal(raw, &got.body)
	return got
}

// later is do in the background.
func (s *site) later(method, path, body string) <-chan reply {
	ch := make(chan reply, 1)
	go func() { ch <- s.do(method, path, body) }()
	return ch
}

func (s *site) create(id string) reply  { return s.do("POST", "", fmt.Sprintf(`{"id":%q}`, id)) }
func (s *site) get(id string) reply     { return s.do("GET", "/"+id, "") }
func (s *site) destroy(id string) reply { return s.do("DELETE", "/"+id, "") }
func (s *site) stop(id string) reply    { return s.do("POST", "/"+id+":stop", "") }

// sh runs a line in a sandbox; its answer is the stream of what came of it.
func (s *site) sh(id, line string) reply {
	return s.do("POST", "/"+id+"/exec", fmt.Sprintf(`{"cmd":%q}`, line))
}

// isClean wants nothing of the owner to be left.
func (s *site) isClean() {
	s.t.Helper()
	if left, err := s.engine.Leftovers(context.Background(), s.owner); len(left) > 0 || err != nil {
		s.t.Errorf("there is left %q, %v", left, err)
	}
}

// isVolumeRemoval says whether a request to the engine removes a workspace.
func isVolumeRemoval(r *http.Request) bool {
	return r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/volumes/kw-")
}

// isList says whether a request to the engine is one for the containers of all ids.
func isList(r *http.Request) bool {
	return strings.HasSuffix(r.URL.Path, "/containers/json") && !strings.Contains(r.URL.Query().Get("filters"), "keepwell.id=")
}

func refuseWhen(is bool) enginetest.Verdict {
	if is {
		return enginetest.Refuse
	}
	return enginetest.Pass
}
