package runner_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

func TestOutputIsReadFromAnyOffset(t *testing.T) {
	c := startDaemon(t).add("a")
	id := c.exec(wire.StartRequest{Cmd: line("printf 0123456789; printf abcdef >&2")}).start.ID
	for query, want := range map[string][2]string{
		"":                {"0123456789", "abcdef"},
		"stdout_offset=4": {"456789", "abcdef"},
		"stdout_offset=10&stderr_offset=5&follow=1": {"", "f"},
	} {
		res := c.stream("GET", "/processes/"+id+"/output?"+query, nil).rest()
		if !res.is(want[0], want[1]) || res.code(t) != 0 || len(res.gaps) != 0 {
			t.Errorf("%s: %+v", query, res)
		}
	}
	for _, query := range []string{"stdout_offset=11", "stderr_offset=7", "stdout_offset=-1", "stdout_offset=x", "follow=perhaps", "stdout_offset=1e3"} {
		c.refused("GET", "/processes/"+id+"/output?"+query, nil, 400, wire.CodeBadRequest)
	}
}

func TestOutputOfARunningProcessIsASnapshotOrFollowed(t *testing.T) {
	c := startDaemon(t).add("a")
	s := c.started(wire.StartRequest{Cmd: line("echo one; cat")})
	path := "/processes/" + s.ID + "/output"
	followers := []*events{c.stream("GET", path+"?follow=1", nil), c.stream("GET", path+"?follow=1&stdout_offset=0", nil)}
	for _, f := range followers {
		f.next()
	}
	resp := c.request("GET", path, nil)
	defer resp.Body.Close()
	var ev wire.Event
	e := &events{t, resp.Body, json.NewDecoder(resp.Body)}
	if ev = e.next(); ev.Data != "one\n" {
		t.Errorf("snapshot %+v", ev)
	}
	if err := e.dec.Decode(&ev); err == nil {
		t.Errorf("a snapshot of a running process ends with %+v", ev)
	}
	c.ok("POST", "/processes/"+s.ID+"/stdin", wire.StdinRequest{Data: "two\n", EOF: true}, nil)
	for _, f := range followers {
		if res := f.rest(); string(res.stdout) != "two\n" || res.code(t) != 0 {
			t.Errorf("follower: %+v", res)
		}
	}
}

// A reader that loses its connection asks for what it has not seen, and finds it there, whoever it is by then.
func TestAReaderThatComesBackMissesNothing(t *testing.T) { // R100
	c := newWorld(t).client
	const text = "plain, gr\u00fc\u00dfe, \U0001f642, \xff\xfe; "
	var read []byte
	take := func(e *events) {
		ev := e.next()
		if ev.Event != wire.EventStdout || ev.Offset != int64(len(read)) {
			t.Fatalf("at %d: %+v", len(read), ev)
		}
		read = append(read, ev.DataB64...)
		if ev.DataB64 == nil {
			read = append(read, ev.Data...)
		}
		e.close()
	}
	e := c.stream("POST", "/exec", wire.StartRequest{Cmd: argv("cat"), StdinOpen: true})
	path := "/processes/" + e.next().ID
	resume := func() *events {
		return c.stream("GET", fmt.Sprintf("%s/output?follow=1&stdout_offset=%d", path, len(read)), nil)
	}
	var wrote []byte
	for i := range 30 {
		part := []byte(strings.Repeat(text, 1+i*40)[i:]) // which may begin within a character
		wrote = append(wrote, part...)
		c.ok("POST", path+"/stdin", wire.StdinRequest{DataB64: part}, nil)
		take(e)
		e = resume()
	}
	e.close()
	c.ok("POST", path+"/stdin", wire.StdinRequest{EOF: true}, nil)
	rest := resume().rest()
	if got := append(read, rest.stdout...); !bytes.Equal(got, wrote) || len(rest.gaps) > 0 || rest.code(t) != 0 {
		t.Errorf("read %d bytes of %d, or others; gaps %+v, exit %+v", len(got), len(wrote), rest.gaps, rest.last)
	}
}

func TestWhatWasDroppedIsAGap(t *testing.T) {
	c := startDaemon(t).add("a")
	id := c.exec(wire.StartRequest{Cmd: line("head -c 3000000 /dev/zero | tr '\\0' x; echo end")}).start.ID
	res := c.stream("GET", "/processes/"+id+"/output", nil).rest()
	if len(res.gaps) != 1 || res.gaps[0].From != 0 || res.gaps[0].Stream != "stdout" || res.gaps[0].To > 3000004-wire.RingSize {
		t.Fatalf("gaps %+v", res.gaps)
	}
	if got := res.gaps[0].To + int64(len(res.stdout)); got != 3000004 || !strings.HasSuffix(string(res.stdout), "xend\n") {
		t.Errorf("gap and output end at %d", got)
	}
}

func TestASlowExecReaderHoldsTheCommandBack(t *testing.T) {
	c := startDaemon(t).add("a")
	e := c.stream("POST", "/exec", wire.StartRequest{Cmd: line(
		"i=0; while [ $i -lt 12 ]; do head -c 1048576 /dev/zero | tr '\\0' x; i=$((i+1)); echo $i > at; done; touch done")})
	e.next() // and no more: the command can write what the pipe, the window and the socket take
	steady := 0
	last := ""
	c.eventually("the command stands still", func() bool {
		_, now := c.download("path=at")
		if steady++; now != last || now == "" {
			steady, last = 0, now
		}
		return steady > 50
	})
	if status, _ := c.download("path=done"); status != 404 {
		t.Error("the command was not held back")
	}
	res := e.rest()
	if len(res.stdout) != 12<<20 || len(res.gaps) != 0 || res.code(t) != 0 {
		t.Errorf("%d bytes, gaps %+v, exit %+v", len(res.stdout), res.gaps, res.last)
	}
}

func TestASlowFollowerSlowsNobody(t *testing.T) {
	c := startDaemon(t).add("a")
	s := c.started(wire.StartRequest{Cmd: line("read x; head -c 20000000 /dev/zero | tr '\\0' x; echo end")})
	slow := c.stream("GET", "/processes/"+s.ID+"/output?follow=1", nil)
	fast := c.stream("GET", "/processes/"+s.ID+"/output?follow=1", nil)
	c.ok("POST", "/processes/"+s.ID+"/stdin", wire.StdinRequest{Data: "\n"}, nil)
	if res := fast.rest(); res.code(t) != 0 || !strings.HasSuffix(string(res.stdout), "xend\n") {
		t.Errorf("the fast one: exit %+v", res.last)
	}
	res := slow.rest()
	if len(res.gaps) == 0 || res.code(t) != 0 || !strings.HasSuffix(string(res.stdout), "xend\n") {
		t.Errorf("the slow one was told of gaps %+v, exit %+v", res.gaps, res.last)
	}
	total := int64(len(res.stdout))
	for _, g := range res.gaps {
		total += g.To - g.From
	}
	if total != 20000004 {
		t.Errorf("bytes and gaps make %d", total)
	}
}

func TestRemoveEndsEveryStreamAndEveryProcess(t *testing.T) { // R96, R99
	d := startDaemon(t)
	c, other := d.add("a"), d.add("b")
	bystander := other.started(wire.StartRequest{Cmd: argv("sleep", "1000")})
	e := c.stream("POST", "/exec", wire.StartRequest{Cmd: line("setsid sh -c 'setsid sleep 1000 & echo $!' & sleep 1000")})
	id := e.next().ID
	pid := strings.TrimSpace(e.next().Data)
	stuck := c.stream("POST", "/exec", wire.StartRequest{Cmd: argv("yes")}) // nobody reads it
	stuck.next()
	follower := c.stream("GET", "/processes/"+id+"/output?follow=1", nil)
	d.remove("a")
	gone(t, pid)
	for _, s := range []*events{e, follower} {
		if last := s.rest().last; last.Event != wire.EventExit || last.Signal == nil || *last.Signal != "SIGKILL" {
			t.Errorf("last event %+v", last)
		}
	}
	c.refused("POST", "/exec", wire.StartRequest{Cmd: argv("true")}, 404, wire.CodeNotFound)
	c.refused("GET", "/processes/"+id, nil, 404, wire.CodeNotFound)
	if !other.process(bystander.ID).Running {
		t.Error("a process of another sandbox was killed")
	}
	d.remove("a") // which is not there any more
}

func TestRemoveDoesNotWaitForAnUpload(t *testing.T) {
	d := startDaemon(t)
	c := d.add("a")
	conn, err := net.Dial("unix", filepath.Join(d.dir, "socket"))
	must(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "PUT /v1/sandboxes/a/files/write?path=f HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
	must(t, err)
	c.eventually("the upload has begun", func() bool {
		var a wire.Activity
		c.ok("GET", "/activity", nil, &a)
		return a.Pins == 1
	})
	d.remove("a")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	defer resp.Body.Close()
	var why wire.Error
	must(t, json.NewDecoder(resp.Body).Decode(&why))
	if resp.StatusCode != http.StatusNotFound || why.Code != wire.CodeSandboxGone {
		t.Errorf("the upload is answered with %d %+v", resp.StatusCode, why)
	}
}

func TestASilentStreamIsKeptOpen(t *testing.T) {
	w := newWorld(t)
	s := w.started(wire.StartRequest{Cmd: argv("cat")})
	e := w.stream("GET", "/processes/"+s.ID+"/output?follow=1", nil)
	got := make(chan wire.Event, 1)
	go func() {
		var ev wire.Event
		_ = e.dec.Decode(&ev)
		got <- ev
	}()
	w.eventually("a ping", func() bool {
		w.clock.Add(wire.PingSeconds * time.Second)
		select {
		case ev := <-got:
			return ev.Event == wire.EventPing
		default:
			return false
		}
	})
}
