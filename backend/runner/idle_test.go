package runner_test

import (
	"io"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/backend/runner"
	"github.com/keepwell-go/keepwell/backend/runner/spawn"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// world is a Server in this process, whose clock stands still until it is moved.
type world struct {
	*client
	server *runner.Server
	clock  *clock.Mock
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldIn(t, protocol())
}

// newWorldIn is a world whose Server speaks a certain version of the protocol; 0: the current one.
func newWorldIn(t testing.TB, protocol int) *world {
	t.Helper()
	return newWorldWith(t, runner.Config{Protocol: protocol})
}

// newWorldWith is a world whose Server is like cfg in what concerns neither processes nor time.
func newWorldWith(t testing.TB, cfg runner.Config) *world {
	t.Helper()
	spawner, err := spawn.New(spawn.Config{})
	must(t, err)
	t.Cleanup(spawner.Close)
	w := &world{clock: clock.NewMock()}
	cfg.Spawner, cfg.Clock, cfg.Version = spawner, w.clock, "v1.2.3"
	w.server = runner.New(cfg)
	home := newHome(t)
	must(t, w.server.Add(runner.Sandbox{ID: "a", Home: home}))
	front := httptest.NewServer(w.server.Handler())
	t.Cleanup(front.Close)
	t.Cleanup(w.server.Close)
	w.client = &client{t: t, http: front.Client(), base: front.URL + "/v1/sandboxes/a", home: home}
	return w
}

// idle asserts for how long nothing was done.
func (w *world) idle(want time.Duration) {
	w.t.Helper()
	a, ok := w.server.Activity("a")
	if want := (wire.Activity{Protocol: a.Protocol, IdleMS: want.Milliseconds()}); !ok || a != want {
		w.t.Errorf("activity %+v, %t; want %+v", a, ok, want)
	}
}

func (w *world) pass(d time.Duration) { w.clock.Set(w.clock.Now().Add(d)) }

func TestTheIdleClockStartsWhenASandboxIsAdded(t *testing.T) {
	w := newWorld(t)
	w.idle(0)
	w.pass(time.Minute)
	w.idle(time.Minute)
	if _, ok := w.server.Activity("b"); ok {
		t.Error("a sandbox that is not there has an activity")
	}
}

func TestWorkIsActivityAndLookingIsNot(t *testing.T) { // R89
	w := newWorld(t)
	w.ok("PUT", "/files/write?path=f", "x", nil)
	id := w.sh("true").start.ID
	steps := []struct {
		what         string
		method, path string
		body         any
		status       int
		active       bool
	}{
		{"a write", "PUT", "/files/write?path=f", "x", 200, true},
		{"a read", "GET", "/files/read?path=f", nil, 200, true},
		{"a directory", "POST", "/files/mkdir?path=d", nil, 200, true},
		{"a delete", "DELETE", "/files/delete?path=d", nil, 200, true},
		{"an exec", "POST", "/exec", wire.StartRequest{Cmd: argv("true")}, 200, true},
		{"a kill", "DELETE", "/processes/" + id, nil, 200, true},
		{"output", "GET", "/processes/" + id + "/output", nil, 200, true},
		{"a list of files", "GET", "/files/list", nil, 200, false},
		{"a stat", "GET", "/files/stat?path=f", nil, 200, false},
		{"a list", "GET", "/processes", nil, 200, false},
		{"a get", "GET", "/processes/" + id, nil, 200, false},
		{"activity", "GET", "/activity", nil, 200, false},
		{"health", "GET", "/../../../health", nil, 200, false},
		{"a read that failed", "GET", "/files/read?path=g", nil, 404, false},
		{"an exec that failed", "POST", "/exec", wire.StartRequest{Cmd: argv("no-such-command")}, 400, false},
		{"an exec that made no sense", "POST", "/exec", "{", 400, false},
		{"a kill of nothing", "DELETE", "/processes/nothing", nil, 404, false},
		{"a wrong method", "PATCH", "/exec", nil, 405, false},
	}
	for _, s := range steps {
		w.pass(time.Minute)
		before, _ := w.server.Activity("a")
		if s.what == "health" {
			resp, err := w.http.Get(strings.TrimSuffix(w.base, "/v1/sandboxes/a") + "/health")
			must(t, err)
			resp.Body.Close()
		} else if status := w.callRaw(s.method, s.path, s.body); status != s.status {
			t.Errorf("%s: %d, want %d", s.what, status, s.status)
		}
		w.eventually("no request is under way", func() bool { a, _ := w.server.Activity("a"); return a.Pins == 0 && a.Running == 0 })
		after, _ := w.server.Activity("a")
		if active := after.IdleMS == 0; active != s.active || !active && after.IdleMS != before.IdleMS {
			t.Errorf("%s: idle for %d ms, before it for %d", s.what, after.IdleMS, before.IdleMS)
		}
	}
}

// callRaw is call for answers that need not be JSON.
func (c *client) callRaw(method, path string, body any) int {
	c.t.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	default:
		r = strings.NewReader(toJSON(b))
	}
	resp := c.request(method, path, r)
	defer resp.Body.Close()
	_, err := io.Copy(io.Discard, resp.Body)
	must(c.t, err)
	return resp.StatusCode
}

func TestARunningProcessIsBusyAndAKilledOneIsNot(t *testing.T) { // R64
	w := newWorld(t)
	s := w.started(wire.StartRequest{Cmd: argv("sleep", "1000")})
	w.pass(time.Hour)
	if a, _ := w.server.Activity("a"); a.Running != 1 || a.IdleMS != 0 {
		t.Errorf("while it runs: %+v", a)
	}
	w.ok("DELETE", "/processes/"+s.ID, nil, nil)
	w.eventually("the request has ended", func() bool { a, _ := w.server.Activity("a"); return a.Pins == 0 })
	w.idle(0)
	w.pass(time.Minute)
	w.idle(time.Minute)
}

func TestAnExecPinsUntilItsEndAndIdleRunsFromThere(t *testing.T) { // R89
	w := newWorld(t)
	e := w.stream("POST", "/exec", wire.StartRequest{Cmd: line("echo ready; while [ ! -e go ]; do sleep 0.02; done")})
	e.next()
	e.next()
	w.pass(time.Hour)
	if a, _ := w.server.Activity("a"); a.Running != 1 || a.Pins != 1 || a.IdleMS != 0 {
		t.Errorf("while it runs: %+v", a)
	}
	must(t, os.WriteFile(w.home+"/go", nil, 0o644))
	if res := e.rest(); res.last.DurationMS != time.Hour.Milliseconds() {
		t.Errorf("exit %+v", res.last)
	}
	w.eventually("the request has ended", func() bool { a, _ := w.server.Activity("a"); return a.Pins == 0 })
	w.pass(time.Second)
	w.idle(time.Second)
}

func TestATimeoutIsAbsolute(t *testing.T) {
	w := newWorld(t)
	s := w.started(wire.StartRequest{ID: "job", Cmd: argv("sleep", "1000"), Timeout: 60})
	w.clock.Add(59 * time.Second)
	w.started(wire.StartRequest{ID: "job", Cmd: argv("sleep", "1000"), Timeout: 60}) // attaching does not extend it
	if !w.process(s.ID).Running {
		t.Error("it was killed before its time")
	}
	e := w.stream("GET", "/processes/job/output?follow=1", nil)
	w.clock.Add(time.Second)
	if res := e.rest(); !res.last.TimedOut || res.last.DurationMS != 60_000 {
		t.Errorf("exit %+v", res.last)
	}
}
