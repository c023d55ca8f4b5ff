package runner_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

func TestAPidIsNotAnID(t *testing.T) { // R60
	c := startDaemon(t).add("a")
	s := c.started(wire.StartRequest{Cmd: argv("sleep", "1000")})
	pid := strconv.Itoa(s.PID)
	for _, r := range []struct{ method, path string }{
		{"DELETE", "/processes/" + pid},
		{"POST", "/processes/" + pid + ":kill"},
		{"POST", "/processes/" + pid + ":signal"},
		{"GET", "/processes/" + pid},
		{"GET", "/processes/" + pid + "/output"},
		{"POST", "/processes/" + pid + "/stdin"},
	} {
		text := c.refused(r.method, r.path, wire.SignalRequest{Signal: "SIGKILL"}, 400, wire.CodePIDNotAccepted)
		if !strings.Contains(text, pid) {
			t.Errorf("the user is told %q", text)
		}
	}
	if p := c.process(s.ID); !p.Running {
		t.Fatalf("it was signalled: %+v", p)
	}
	var k wire.Killed
	c.ok("DELETE", "/processes/"+s.ID, nil, &k)
	if !k.Killed || k.ID != s.ID || c.process(s.ID).Running {
		t.Errorf("killed by its id: %+v", k)
	}
	gone(t, pid)
}

func TestKillSaysWhetherThisCallStoppedIt(t *testing.T) { // R61
	c := startDaemon(t).add("a")
	s := c.started(wire.StartRequest{Cmd: argv("sleep", "1000")})
	for _, want := range []bool{true, false, false} {
		var k wire.Killed
		if c.ok("DELETE", "/processes/"+s.ID, nil, &k); k.Killed != want {
			t.Errorf("killed %t, want %t", k.Killed, want)
		}
	}
	if p := c.process(s.ID); p.Running || p.Signal == nil || *p.Signal != "SIGKILL" {
		t.Errorf("the record is %+v", p)
	}
	res := c.sh("exit 4")
	for _, verb := range []string{"DELETE", "POST"} {
		path := "/processes/" + res.start.ID + map[string]string{"POST": ":kill"}[verb]
		var k wire.Killed
		if c.ok(verb, path, nil, &k); k.Killed {
			t.Errorf("%s of a process that had exited: %+v", verb, k)
		}
	}
	if p := c.process(res.start.ID); *p.ExitCode != 4 {
		t.Errorf("the record is %+v", p)
	}
}

func TestOneOfManyKillsSaysItWasTheOne(t *testing.T) { // R61
	c := startDaemon(t).add("a")
	s := c.started(wire.StartRequest{Cmd: argv("sleep", "1000")})
	var wg sync.WaitGroup
	answers := make(chan wire.Killed, 10)
	for range cap(answers) {
		wg.Go(func() {
			var k wire.Killed
			c.call("DELETE", "/processes/"+s.ID, nil, &k)
			answers <- k
		})
	}
	wg.Wait()
	close(answers)
	trues := 0
	for k := range answers {
		if k.Killed {
			trues++
		}
		if k.ID != s.ID {
			t.Errorf("answer %+v", k)
		}
	}
	if trues != 1 {
		t.Errorf("%d calls say that they stopped it", trues)
	}
}

func TestGraceLetsAProcessEndByItself(t *testing.T) {
	c := startDaemon(t).add("a")
	polite := c.started(wire.StartRequest{Cmd: line("trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done")})
	deaf := c.started(wire.StartRequest{Cmd: line("trap '' TERM; echo ready; while :; do sleep 0.02; done")})
	for _, s := range []wire.Started{polite, deaf} {
		c.stream("GET", "/processes/"+s.ID+"/output?follow=1", nil).next() // the trap is set
	}
	var k wire.Killed
	c.ok("POST", "/processes/"+polite.ID+":kill?grace=60", nil, &k)
	if p := c.process(polite.ID); !k.Killed || p.ExitCode == nil || *p.ExitCode != 9 {
		t.Errorf("%+v, process %+v", k, p)
	}
	c.ok("POST", "/processes/"+deaf.ID+":kill?grace=0.2", nil, &k)
	if p := c.process(deaf.ID); !k.Killed || p.Signal == nil || *p.Signal != "SIGKILL" {
		t.Errorf("%+v, process %+v", k, p)
	}
	for _, grace := range []string{"-1", "x", "1e9", "NaN", "301"} {
		c.refused("POST", "/processes/"+deaf.ID+":kill?grace="+grace, nil, 400, wire.CodeBadRequest)
	}
}

func TestKillReachesDescendantsThatLeftTheGroup(t *testing.T) { // R96
	c := startDaemon(t).add("a")
	s := c.started(wire.StartRequest{Cmd: line(
		`setsid sh -c '(sleep 1001 & echo $! > far; exec setsid sh -c "echo \$\$ > farther; sleep 1002") & echo $! > near' & sleep 1000`)})
	var pids []string
	for _, name := range []string{"near", "far", "farther"} {
		c.eventually(name+" runs", func() bool {
			status, text := c.download("path=" + name)
			return status == 200 && strings.HasSuffix(text, "\n")
		})
		pids = append(pids, strings.TrimSpace(c.onDisk(name)))
	}
	c.ok("DELETE", "/processes/"+s.ID, nil, nil)
	for _, pid := range pids {
		gone(t, pid)
	}
}

func TestKillOfOneLeavesTheOthers(t *testing.T) {
	c := startDaemon(t).add("a")
	one := c.started(wire.StartRequest{Cmd: argv("sleep", "1000")})
	other := c.started(wire.StartRequest{Cmd: argv("sleep", "1000")})
	c.ok("DELETE", "/processes/"+one.ID, nil, nil)
	if !c.process(other.ID).Running {
		t.Error("another process of the sandbox was killed too")
	}
}

func TestOrphansAreReaped(t *testing.T) { // R98
	d := startDaemon(t)
	c := d.add("a")
	c.sh("for i in $(seq 200); do (: &); done >/dev/null 2>&1; wait")
	c.eventually("no zombie is left", func() bool { return len(zombies(d.cmd.Process.Pid)) == 0 })
}

// zombies returns the children of parent that nobody has waited for.
func zombies(parent int) []string {
	var all []string
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if fields[0] == "Z" && fields[1] == fmt.Sprint(parent) {
			all = append(all, name)
		}
	}
	return all
}

func TestAHungUpClientDetaches(t *testing.T) {
	c := startDaemon(t).add("a")
	e := c.stream("POST", "/exec", wire.StartRequest{Cmd: line("echo one; while [ ! -e go ]; do sleep 0.02; done; echo two; exit 6")})
	start := e.next()
	e.next()
	e.close()
	if p := c.process(start.ID); !p.Running {
		t.Fatalf("it did not go on: %+v", p)
	}
	c.ok("PUT", "/files/write?path=go", "", nil)
	res := c.stream("GET", "/processes/"+start.ID+"/output?follow=1", nil).rest()
	if !res.is("one\ntwo\n", "") || res.code(t) != 6 {
		t.Errorf("output afterwards: %+v", res)
	}
}

func TestAHungUpClientKillsIfItSaidSo(t *testing.T) {
	c := startDaemon(t).add("a")
	e := c.stream("POST", "/exec", wire.StartRequest{Cmd: line("setsid sleep 1000 & echo $!; yes"), KillOnDisconnect: true})
	start := e.next()
	pid, _, _ := strings.Cut(e.next().Data, "\n")
	e.close()
	c.eventually("it is killed", func() bool { return !c.process(start.ID).Running })
	if p := c.process(start.ID); p.Signal == nil || *p.Signal != "SIGKILL" {
		t.Errorf("process %+v", p)
	}
	c.eventually("its descendants are gone", func() bool { return stateOf(pid) == "" })
}
