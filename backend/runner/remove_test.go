package runner_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend/runner"
	"github.com/keepwell-go/keepwell/backend/runner/spawn"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// stuckClient is a client that takes nothing until it is let go.
type stuckClient struct {
	*httptest.ResponseRecorder
	writing chan struct{} // closed by the first write
	letGo   chan struct{}
}

func (c *stuckClient) Write(b []byte) (int, error) {
	close(c.writing)
	<-c.letGo
	return c.ResponseRecorder.Write(b)
}

func TestARemoveThatFailedCanBeRepeated(t *testing.T) { // R83
	w := newWorld(t)
	w.ok("PUT", "/files/write?path=f", "content", nil)
	client := &stuckClient{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.server.Handler().ServeHTTP(client, httptest.NewRequest("GET", "/v1/sandboxes/a/files/read?path=f", nil))
	}()
	<-client.writing
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := w.server.Remove(ctx, "a"); err == nil || !strings.Contains(err.Error(), "requests under way") {
		t.Errorf("with a request that goes on: %v", err)
	}
	w.refused("POST", "/exec", wire.StartRequest{Cmd: argv("true")}, 404, wire.CodeSandboxGone)
	if _, known := w.server.Activity("a"); !known {
		t.Error("the sandbox was forgotten")
	}
	close(client.letGo)
	<-over
	must(t, w.server.Remove(t.Context(), "a"))
	if _, known := w.server.Activity("a"); known {
		t.Error("the sandbox was not forgotten")
	}
	w.refused("POST", "/exec", wire.StartRequest{Cmd: argv("true")}, 404, wire.CodeNotFound)
	if got := client.Body.String(); got != "content" || client.Code != http.StatusOK {
		t.Errorf("the request ended with %d %q", client.Code, got)
	}
}

// What holds a start up is killed with the sandbox, and what queues behind it is refused, or each in turn would be held up.
func TestARemoveDoesNotWaitForStartsThatItCanRefuse(t *testing.T) {
	w := newWorld(t)
	ended := w.server.LaunchUntilRefused("a", func(c *spawn.Confinement) error {
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer null.Close()
		_, err = c.Start(spawn.Command{ID: "x", Argv: []string{"/bin/true"}, Stdin: null, Stdout: null, Stderr: null})
		return err
	})
	must(t, w.server.Remove(t.Context(), "a"))
	if err := <-ended; !errors.Is(err, spawn.ErrClosed) {
		t.Errorf("the start that waited ended with %v; want that the sandbox is closed", err)
	}
}

func TestCloseKillsAndEndsStreams(t *testing.T) {
	w := newWorld(t)
	e := w.stream("POST", "/exec", wire.StartRequest{Cmd: argv("sleep", "1000")})
	e.next()
	w.server.Close()
	if last := e.rest().last; last.Event != wire.EventExit || last.Signal == nil {
		t.Errorf("last event %+v", last)
	}
}

// endlessClient takes nothing until it is let go. For each thing that it takes then there is more.
type endlessClient struct {
	*httptest.ResponseRecorder
	out     *runner.Output
	writing chan struct{} // closed by the first write
	letGo   chan struct{}
	writes  int
}

func (c *endlessClient) Write(b []byte) (int, error) {
	if c.writes++; c.writes == 1 {
		close(c.writing)
	}
	<-c.letGo
	c.out.Append(1, plenty())
	if c.writes > 100 {
		return 0, errors.New("this has no end")
	}
	return c.ResponseRecorder.Write(b)
}

// plenty is more than goes into one write.
func plenty() []byte { return bytes.Repeat([]byte("plenty, "), 50<<10) }

func TestAStreamEndsThoughItsProcessCouldNotBeKilled(t *testing.T) { // R99
	w := newWorld(t)
	endless, die := w.server.Immortal("a", "endless")
	silent, end := w.server.Immortal("a", "silent")
	defer end()
	defer die()
	endless.Append(1, plenty())
	silent.Append(0, []byte("once"))
	client := &endlessClient{ResponseRecorder: httptest.NewRecorder(), out: endless, writing: make(chan struct{}), letGo: make(chan struct{})}
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.server.Handler().ServeHTTP(client, httptest.NewRequest("GET", "/v1/sandboxes/a/processes/endless/output?follow=1", nil))
	}()
	<-client.writing
	follower := w.stream("GET", "/processes/silent/output?follow=1", nil)
	if ev := follower.next(); ev.Data != "once" {
		t.Errorf("event %+v", ev)
	}
	w.closes()
	if last := follower.rest().last; last.Event != wire.EventError || last.Code != wire.CodeSandboxGone || last.Error == "" {
		t.Errorf("of the silent one: %+v", last)
	}
	close(client.letGo)
	<-over
	sent := client.Body.String()
	if strings.Count(sent, `"event":"error"`) != 1 || !strings.HasSuffix(sent, `"code":"sandbox_gone"}`+"\n") {
		t.Errorf("after %d writes the endless one ended with %.300q", client.writes, sent[max(0, len(sent)-300):])
	}
}

// closes closes the server, however long it waits for what does not end.
func (w *world) closes() {
	w.t.Helper()
	closed := make(chan struct{})
	go func() { defer close(closed); w.server.Close() }()
	w.eventually("the server gives up", func() bool {
		w.clock.Add(time.Second)
		select {
		case <-closed:
			return true
		default:
			return false
		}
	})
}

func TestTheNumberOfRunningProcessesIsBounded(t *testing.T) {
	w := newWorld(t)
	first := w.started(wire.StartRequest{ID: "first", Cmd: argv("cat")})
	w.server.Crowd("a", wire.MaxRunning-1)
	if text := w.refused("POST", "/exec", wire.StartRequest{Cmd: argv("true")}, 429, wire.CodeQuotaExceeded); !strings.Contains(text, "512") {
		t.Errorf("the user is told %q", text)
	}
	resp := w.request("POST", "/processes", strings.NewReader(`{"cmd":"true"}`))
	resp.Body.Close()
	if after := resp.Header.Get("Retry-After"); resp.StatusCode != 429 || after != "1" {
		t.Errorf("%d, to be tried again after %q", resp.StatusCode, after)
	}
	if again := w.started(wire.StartRequest{ID: "first", Cmd: argv("cat")}); !again.Reattached || again.PID != first.PID {
		t.Errorf("a process that runs was not found: %+v", again)
	}
	w.ok("DELETE", "/processes/first", nil, nil)
	w.eventually("there is room again", func() bool {
		return w.callRaw("POST", "/exec", wire.StartRequest{Cmd: argv("true")}) == 200
	})
	w.server.Crowd("a", 1-wire.MaxRunning)
}

func TestTheOutputOfFinishedProcessesIsBounded(t *testing.T) { // R65
	w := newWorld(t)
	first := w.sh("echo first").start.ID
	w.eventually("it is in the history", func() bool { return w.server.Kept("a") > 0 })
	const each = 1_100_000 // of each stream: more than is kept, less than twice that
	var outs []*runner.Output
	for range wire.MaxFinishedOutput/(2*wire.RingSize) + 3 {
		out := runner.NewOutput()
		out.Append(0, make([]byte, each))
		out.Append(1, make([]byte, each))
		w.server.Finish("a", out)
		outs = append(outs, out)
	}
	res := w.stream("GET", "/processes/"+first+"/output", nil).rest()
	if res.code(t) != 0 || len(res.stdout) != 0 || len(res.gaps) != 1 {
		t.Errorf("of the oldest one %q is kept, gaps %+v, exit %+v; want the exit alone", res.stdout, res.gaps, res.last)
	}
	if got := outs[len(outs)-1].Held(); got < 2*wire.RingSize || got > 2*each {
		t.Errorf("of the newest one %d bytes are kept", got)
	}
	total := int64(0)
	for _, out := range outs {
		total += out.Held()
	}
	if total > wire.MaxFinishedOutput || total < wire.MaxFinishedOutput-4*each {
		t.Errorf("%d bytes are kept in all, limit %d", total, wire.MaxFinishedOutput)
	}
}

func TestNothingIsLeftOfWhatHasEnded(t *testing.T) {
	w := newWorld(t)
	w.sh("true") // what is made once
	w.ok("PUT", "/files/write?path=f", "x", nil)
	w.http.CloseIdleConnections()
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	for range 4 {
		w.sh("echo out; echo err >&2; exit 1")
		w.exec(wire.StartRequest{Cmd: argv("true"), Stdin: ptr(strings.Repeat("x", 1<<20)), Timeout: 100})
		w.refused("POST", "/exec", wire.StartRequest{Cmd: argv("no-such-command"), Stdin: ptr("x")}, 400, wire.CodeCannotStart)
		w.refused("POST", "/exec", wire.StartRequest{Cmd: argv("true"), Cwd: "nowhere"}, 400, wire.CodeNotFound)
		e := w.stream("POST", "/exec", wire.StartRequest{Cmd: argv("sleep", "1000"), KillOnDisconnect: true})
		e.next()
		e.close()
		s := w.started(wire.StartRequest{Cmd: argv("cat")})
		w.stream("GET", "/processes/"+s.ID+"/output?follow=1", nil).close()
		w.ok("POST", "/processes/"+s.ID+":kill", nil, nil)
		w.download("path=f")
	}
	w.eventually("goroutines and open files are as many as before", func() bool {
		w.http.CloseIdleConnections()
		return runtime.NumGoroutine() <= goroutines && openFiles(t) <= files
	})
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}
