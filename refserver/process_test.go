package refserver_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

func TestBothWaysToStartAProcessAndTheListAgreeOnItsID(t *testing.T) { // R63
	g := newGuests(t)
	g.create("a")
	background := g.start("a", `{"cmd":"sleep 100"}`)
	e := g.stream(g.url, "POST", "/v1/sandboxes/a/exec", `{"cmd":"sleep 100"}`)
	foreground, ok := e.next()
	if !ok || foreground.Event != wire.EventStart {
		t.Fatalf("exec began with %+v", foreground)
	}
	var list []wire.Process
	if err := json.Unmarshal([]byte(g.do("GET", "/v1/sandboxes/a/processes", "").raw), &list); err != nil {
		t.Fatal(err)
	}
	pids := map[string]int{}
	for _, p := range list {
		pids[p.ID] = p.PID
	}
	if len(list) != 2 || pids[background.ID] != background.PID || pids[foreground.ID] != foreground.PID {
		t.Errorf("listed %v, started %v and %v", pids, background, foreground)
	}
	for _, id := range []string{background.ID, foreground.ID} {
		if !strings.HasPrefix(id, "proc_") {
			t.Errorf("the id %q is not one of the server's", id)
		}
	}
}

func TestAProcessIsKilledByItsIDAndNeverByItsNumber(t *testing.T) { // R60, R61
	g := newGuests(t)
	g.create("a")
	p := g.start("a", `{"cmd":"sleep 100"}`)
	base := "/v1/sandboxes/a/processes/"
	pid := strconv.Itoa(p.PID)
	for _, rq := range [][3]string{
		{"DELETE", pid, ""},
		{"GET", pid, ""},
		{"POST", pid + ":kill", ""},
		{"POST", pid + ":signal", `{"signal":"SIGKILL"}`},
		{"POST", pid + "/stdin", `{"data":"x"}`},
		{"GET", pid + "/output", ""},
		{"DELETE", "1", ""},
		{"DELETE", "0", ""},
	} {
		g.do(rq[0], base+rq[1], rq[2]).want(t, 400, "pid_not_accepted")
	}
	if got := g.do("GET", base+p.ID, "").want(t, 200, ""); got.body["running"] != true {
		t.Fatalf("after kills by number it is %s", got.raw)
	}
	for _, killed := range []bool{true, false} {
		if got := g.do("DELETE", base+p.ID, "").want(t, 200, ""); got.body["killed"] != killed || got.str("id") != p.ID {
			t.Errorf("killed: %s, want %t", got.raw, killed)
		}
	}
	g.do("DELETE", base+"proc_unknown", "").want(t, 404, "not_found")
	done := g.start("a", `{"cmd":"true"}`)
	g.stream(g.url, "GET", base+done.ID+"/output?follow=1", "").rest()
	if got := g.do("DELETE", base+done.ID, "").want(t, 200, ""); got.body["killed"] != false {
		t.Errorf("a process that had ended: %s", got.raw)
	}
}

func TestAKilledProcessHoldsOffNoSweep(t *testing.T) { // R64
	g := newGuests(t)
	g.do("POST", "/v1/sandboxes", `{"id":"a","idle_timeout_ms":1}`).want(t, 201, "")
	p := g.start("a", `{"cmd":"sleep 100"}`)
	g.sweep()
	if g.srv.Len() != 1 {
		t.Fatal("stopped under a running process")
	}
	g.do("DELETE", "/v1/sandboxes/a/processes/"+p.ID, "").want(t, 200, "")
	for g.srv.Len() == 1 && !t.Failed() { // its idle time is the runner's, which is a real clock
		g.sweep()
	}
}

func (g *guests) sweep() {
	g.t.Helper()
	if err := g.srv.Sweep(g.t.Context()); err != nil {
		g.t.Errorf("sweep: %v", err)
	}
}

func TestIfIdleSparesARealProcess(t *testing.T) { // R31
	g := newGuests(t)
	g.create("a")
	p := g.start("a", `{"cmd":"sleep 100"}`)
	g.do("DELETE", "/v1/sandboxes/a?if_idle=1", "").want(t, 409, "busy")
	if got := g.do("GET", "/v1/sandboxes/a/processes/"+p.ID, ""); got.body["running"] != true {
		t.Errorf("the process is %s", got.raw)
	}
	g.do("DELETE", "/v1/sandboxes/a/processes/"+p.ID, "").want(t, 200, "")
	g.do("DELETE", "/v1/sandboxes/a?if_idle=1", "").want(t, 200, "")
}

func TestEveryStreamEndsWithExactlyOneLastEvent(t *testing.T) { // R99
	g := newGuests(t)
	g.create("a")
	exec := func(body string) *events { return g.stream(g.url, "POST", "/v1/sandboxes/a/exec", body) }
	if out, last := exec(`{"cmd":"echo hi; exit 3"}`).rest(); out != "hi\n" || last.ExitCode == nil || *last.ExitCode != 3 {
		t.Errorf("a command that exits: %q, %+v", out, last)
	}
	g.do("POST", "/v1/sandboxes/a/exec", `{"cmd":["/no/such/program"]}`).want(t, 400, "cannot_start")

	e := exec(`{"cmd":"echo up; sleep 100"}`)
	e.next()
	g.do("DELETE", "/v1/sandboxes/a", "").want(t, 200, "")
	if _, last := e.rest(); last.Event == wire.EventExit && last.ExitCode != nil && *last.ExitCode == 0 {
		t.Errorf("in a sandbox that was destroyed: %+v", last)
	}

	g.create("a")
	e = exec(`{"cmd":"echo up; sleep 100"}`)
	e.next()
	e.next()
	g.socket.CloseClientConnections() // as when the runner is killed
	if _, last := e.rest(); last.Event != wire.EventError || last.Code != wire.CodeRunnerLost {
		t.Errorf("with the runner killed: %+v", last)
	}
}

func TestOutputSurvivesTheServerThatStartedIt(t *testing.T) { // R100
	g := newGuests(t)
	g.create("a")
	p := g.start("a", `{"cmd":"for i in 1 2 3 4 5; do echo line$i; done; read x; echo got $x"}`)
	early := g.stream(g.url, "GET", "/v1/sandboxes/a/processes/"+p.ID+"/output?follow=1", "")
	for seen := 0; seen < len("line1\n")*5; {
		ev, ok := early.next()
		if !ok {
			t.Fatal("the output ended")
		}
		seen += len(ev.Data)
	}
	g.srv.Close()
	_, next := g.replica()
	g.url = next
	e := g.stream(next, "GET", "/v1/sandboxes/a/processes/"+p.ID+"/output?follow=1&stdout_offset=6", "")
	g.do("POST", "/v1/sandboxes/a/processes/"+p.ID+"/stdin", `{"data":"this\n"}`).want(t, 200, "")
	if out, last := e.rest(); out != "line2\nline3\nline4\nline5\ngot this\n" || last.Event != wire.EventExit {
		t.Errorf("read %q, then %+v", out, last)
	}
}

func TestARepeatedStartIsTheSameProcess(t *testing.T) { // R75
	g := newGuests(t)
	g.create("a")
	first := g.start("a", `{"id":"mine","cmd":"sleep 100"}`)
	again := g.start("a", `{"id":"mine","cmd":"sleep 100"}`)
	if first.ID != "mine" || again.ID != "mine" || first.PID != again.PID || first.Reattached || !again.Reattached {
		t.Errorf("started %+v, then %+v", first, again)
	}
}

func TestFilesGoInAndOutUnchanged(t *testing.T) {
	g := newGuests(t)
	g.create("a")
	data := strings.Repeat("\x00\xff\n binary ", 200_000)
	for _, declared := range []bool{true, false} {
		var body io.Reader = strings.NewReader(data)
		if !declared {
			body = io.MultiReader(body)
		}
		r, err := http.NewRequest("PUT", g.url+"/v1/sandboxes/a/files/write?path=dir/f&mkdir=1", body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+adminToken)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Fatalf("write (declared: %t) answered %d", declared, resp.StatusCode)
		}
		if got := g.do("GET", "/v1/sandboxes/a/files/read?path=dir/f", ""); got.raw != data || got.status != 200 {
			t.Errorf("read %d bytes with %d, want %d", len(got.raw), got.status, len(data))
		}
	}
	for _, path := range []string{"../f", "/etc/passwd", "dir/../../f", "%00"} {
		got := g.do("GET", "/v1/sandboxes/a/files/read?path="+path, "")
		if got.status < 400 || got.status >= 500 || got.code() == "" {
			t.Errorf("%q answered %d %s", path, got.status, got.raw)
		}
	}
	g.do("GET", "/v1/sandboxes/a/files/read?path=none", "").want(t, 404, "not_found")
}

func TestARunnersRefusalsArriveThroughTheServer(t *testing.T) { // R54, R55
	g := newGuests(t)
	g.create("a")
	for _, body := range []string{``, `{`, `{"cmd":"true"}{}`, `{"cmd":7}`, `{"cmd":"true","shell":false}`, `{"cmd":"true","env":[]}`, `{"cmd":""}`} {
		for _, path := range []string{"exec", "processes"} {
			g.do("POST", "/v1/sandboxes/a/"+path, body).want(t, 400, "bad_request")
		}
	}
	pad := strings.Repeat("x", wire.MaxBody-len(`{"cmd":["true"],"stdin":""}`))
	if _, last := g.stream(g.url, "POST", "/v1/sandboxes/a/exec", fmt.Sprintf(`{"cmd":["true"],"stdin":%q}`, pad)).rest(); last.Event != wire.EventExit {
		t.Errorf("a body of exactly the limit: %+v", last)
	}
	g.do("POST", "/v1/sandboxes/a/exec", fmt.Sprintf(`{"cmd":["true"],"stdin":%q}`, pad+"x")).want(t, 413, "payload_too_large")
}
