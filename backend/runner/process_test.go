package runner_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// started starts a background process.
func (c *client) started(req wire.StartRequest) wire.Started {
	c.t.Helper()
	var s wire.Started
	c.ok("POST", "/processes", req, &s)
	return s
}

func (c *client) process(id string) wire.Process {
	c.t.Helper()
	var p wire.Process
	c.ok("GET", "/processes/"+id, nil, &p)
	return p
}

func (c *client) ended(id string) wire.Process {
	c.t.Helper()
	c.stream("GET", "/processes/"+id+"/output?follow=1", nil).rest()
	return c.process(id)
}

func TestEveryRouteKnowsAProcessByOneID(t *testing.T) { // R63
	c := startDaemon(t).add("a")
	s := c.started(wire.StartRequest{Cmd: argv("sleep", "1000"), Tag: "web"})
	e := c.stream("POST", "/exec", wire.StartRequest{Cmd: line("sleep 1000")})
	start := e.next()
	var list []wire.Process
	c.ok("GET", "/processes", nil, &list)
	want := []string{s.ID, start.ID}
	slices.Sort(want)
	if len(list) != 2 || list[0].ID != want[0] || list[1].ID != want[1] {
		t.Fatalf("list %+v, want the ids %v", list, want)
	}
	p := c.process(s.ID)
	if p.ID != s.ID || p.PID != s.PID || p.Tag != "web" || !p.Running || p.ExitCode != nil || p.StartedAtMS == 0 || p.Cmd.Argv[0] != "sleep" {
		t.Errorf("process %+v", p)
	}
	if p := c.process(start.ID); p.Cmd.Line != "sleep 1000" || p.PID != start.PID {
		t.Errorf("process %+v", p)
	}
}

func TestAnIDIsTakenFromTheBodyThenTheHeader(t *testing.T) {
	c := startDaemon(t).add("a")
	if s := c.started(wire.StartRequest{ID: "from-body", Cmd: argv("true")}); s.ID != "from-body" {
		t.Errorf("id %q", s.ID)
	}
	c.header = map[string]string{wire.ProcessIDHeader: "from-header"}
	if s := c.started(wire.StartRequest{Cmd: argv("true")}); s.ID != "from-header" {
		t.Errorf("id %q", s.ID)
	}
	if res := c.exec(wire.StartRequest{Cmd: argv("echo", "again")}); res.start.ID != "from-header" || len(res.stdout) != 0 {
		t.Errorf("a second start under the header's id: %+v", res)
	}
	if s := c.started(wire.StartRequest{ID: "other", Cmd: argv("true")}); s.ID != "other" {
		t.Errorf("id %q", s.ID)
	}
	c.header[wire.ProcessIDHeader] = "no/id"
	c.refused("POST", "/exec", wire.StartRequest{Cmd: argv("true")}, 400, wire.CodeBadRequest)
}

func TestARepeatedStartIsTheSameProcess(t *testing.T) { // R75
	c := startDaemon(t).add("a")
	req := wire.StartRequest{ID: "job-1", Cmd: line("echo ran >> runs; echo hello; sleep 1000")}
	first := c.started(req)
	again := c.started(req)
	if first.Reattached || !again.Reattached || first.PID != again.PID || again.ID != "job-1" {
		t.Errorf("first %+v, again %+v", first, again)
	}
	e := c.stream("POST", "/exec", req)
	if ev := e.next(); ev.Event != wire.EventStart || ev.ID != "job-1" || ev.PID != first.PID {
		t.Errorf("start %+v", ev)
	}
	if ev := e.next(); ev.Data != "hello\n" || ev.Offset != 0 {
		t.Errorf("a second attach was told %+v", ev)
	}
	c.ok("DELETE", "/processes/job-1", nil, nil)
	if last := e.rest().last; last.Signal == nil || *last.Signal != "SIGKILL" {
		t.Errorf("exit %+v", last)
	}
	if s := c.started(req); !s.Reattached || s.PID != first.PID {
		t.Errorf("after its end: %+v", s)
	}
	if got := c.onDisk("runs"); got != "ran\n" {
		t.Errorf("it ran more than once: %q", got)
	}
}

func TestConcurrentStartsOfOneIDRunOnce(t *testing.T) { // R75
	c := startDaemon(t).add("a")
	answers := make(chan wire.Started, 20)
	for range cap(answers) {
		go func() {
			var s wire.Started
			c.call("POST", "/processes", wire.StartRequest{ID: "one", Cmd: line("echo ran >> runs; sleep 1000")}, &s)
			answers <- s
		}()
	}
	firsts, pids := 0, map[int]bool{}
	for range cap(answers) {
		s := <-answers
		pids[s.PID] = true
		if !s.Reattached {
			firsts++
		}
	}
	if firsts != 1 || len(pids) != 1 || pids[0] {
		t.Errorf("%d of them started something, pids %v", firsts, pids)
	}
}

func TestFinishedProcessesAreKeptInABoundedNumber(t *testing.T) { // R65
	c := startDaemon(t).add("a")
	long := c.started(wire.StartRequest{ID: "0-long", Cmd: argv("sleep", "1000")})
	for i := range wire.MaxFinished + 20 {
		c.exec(wire.StartRequest{ID: fmt.Sprintf("short-%03d", i), Cmd: argv("true")})
	}
	c.eventually("the history is cut", func() bool {
		var list []wire.Process
		c.ok("GET", "/processes", nil, &list)
		return len(list) == wire.MaxFinished+1 && list[0].ID == long.ID && list[0].Running && list[1].ID == "short-020"
	})
	c.refused("GET", "/processes/short-000", nil, 404, wire.CodeNotFound)
}

func TestPagesPutTogetherAreTheList(t *testing.T) { // R71
	c := startDaemon(t).add("a")
	for _, id := range []string{"b", "a", "Z", "proc_x", "_", "c-1"} {
		c.started(wire.StartRequest{ID: id, Cmd: argv("true")})
	}
	var got []string
	for cursor := ""; ; {
		resp := c.request("GET", "/processes?limit=2&cursor="+cursor, nil)
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		for _, part := range strings.Split(string(text), `"id":"`)[1:] {
			got = append(got, part[:strings.IndexByte(part, '"')])
		}
		if cursor = resp.Header.Get(wire.NextCursor); cursor == "" {
			break
		}
	}
	if want := "Z _ a b c-1 proc_x"; strings.Join(got, " ") != want {
		t.Errorf("pages give %v, want %s", got, want)
	}
}

func TestStdinOfABackgroundProcessStaysOpen(t *testing.T) {
	c := startDaemon(t).add("a")
	s := c.started(wire.StartRequest{Cmd: argv("cat")})
	path := "/processes/" + s.ID + "/stdin"
	e := c.stream("GET", "/processes/"+s.ID+"/output?follow=1", nil)
	c.ok("POST", path, wire.StdinRequest{Data: "hello "}, nil)
	if ev := e.next(); ev.Data != "hello " {
		t.Errorf("event %+v", ev)
	}
	c.ok("POST", path, wire.StdinRequest{DataB64: []byte{0xff, '!'}, EOF: true}, nil)
	if res := e.rest(); string(res.stdout) != "\xff!" || res.code(t) != 0 {
		t.Errorf("rest %+v", res)
	}
	c.refused("POST", path, wire.StdinRequest{Data: "x"}, 409, wire.CodeStdinClosed)
	s = c.started(wire.StartRequest{Cmd: argv("cat"), Stdin: ptr("given")})
	if p := c.ended(s.ID); p.Running || *p.ExitCode != 0 {
		t.Errorf("a process whose stdin is given: %+v", p)
	}
	c.refused("POST", "/processes/"+s.ID+"/stdin", wire.StdinRequest{EOF: true}, 409, wire.CodeStdinClosed)
}

func TestStdinOfAnExecStaysOpenWhenThatIsAskedFor(t *testing.T) {
	c := startDaemon(t).add("a")
	for _, given := range []*string{nil, ptr(""), ptr("given, "), ptr(strings.Repeat("x", 1<<20))} {
		e := c.stream("POST", "/exec", wire.StartRequest{Cmd: argv("cat"), Stdin: given, StdinOpen: true})
		path := "/processes/" + e.next().ID + "/stdin"
		c.ok("POST", path, wire.StdinRequest{Data: "passed "}, nil)
		c.ok("POST", path, wire.StdinRequest{Data: "on", EOF: true}, nil)
		want := "passed on"
		if given != nil {
			want = *given + want
		}
		if res := e.rest(); string(res.stdout) != want || res.code(t) != 0 {
			t.Errorf("of %d bytes %d were printed, exit %+v", len(want), len(res.stdout), res.last)
		}
		c.refused("POST", path, wire.StdinRequest{Data: "x"}, 409, wire.CodeStdinClosed)
	}
	s := c.started(wire.StartRequest{Cmd: argv("cat"), Stdin: ptr("given, "), StdinOpen: true})
	c.ok("POST", "/processes/"+s.ID+"/stdin", wire.StdinRequest{Data: "passed on", EOF: true}, nil)
	if res := c.stream("GET", "/processes/"+s.ID+"/output?follow=1", nil).rest(); string(res.stdout) != "given, passed on" {
		t.Errorf("a background process printed %q", res.stdout)
	}
}

func TestSignalReachesTheProcessGroup(t *testing.T) {
	c := startDaemon(t).add("a")
	s := c.started(wire.StartRequest{Cmd: line("trap 'echo got it; exit 5' USR1; echo ready; while :; do sleep 0.05; done")})
	e := c.stream("GET", "/processes/"+s.ID+"/output?follow=1", nil)
	e.next()
	var sig wire.Signaled
	c.ok("POST", "/processes/"+s.ID+":signal", wire.SignalRequest{Signal: "SIGUSR1"}, &sig)
	if res := e.rest(); !sig.Signaled || sig.ID != s.ID || string(res.stdout) != "got it\n" || res.code(t) != 5 {
		t.Errorf("answer %+v, then %+v", sig, res)
	}
	c.ok("POST", "/processes/"+s.ID+":signal", wire.SignalRequest{Signal: "TERM"}, &sig)
	if sig.Signaled {
		t.Error("a process that has ended was signalled")
	}
}
