package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTheRunnerSpeaksNoProtocolThatItDoesNotKnow(t *testing.T) {
	l := newLab(t)
	for _, args := range [][]string{
		{"--host", l.home, "--protocol", "0"},
		{"--host", l.home, "--protocol", "3"},
		{"--protocol", "3", "--", "-id", "box", "-listen", "127.0.0.1:0"},
		{"--", "-id", "box", "-listen", "127.0.0.1:0", "-protocol", "3"},
	} {
		out, code := l.run(append([]string{"runner"}, args...)...)
		if code != exitUsage || !strings.Contains(out, "protocol "+protocolIn(args)+" is not among 1 to 2") {
			t.Errorf("%v ended with %d: %s", args, code, out)
		}
	}
	if out, code := l.run("runner", "--host", l.home, "--protocol", "one"); code != exitUsage || !strings.Contains(out, "--protocol") {
		t.Errorf("ended with %d: %s", code, out)
	}
}

// protocolIn returns the value of the flag.
func protocolIn(args []string) string {
	for i, arg := range args {
		if strings.HasSuffix(arg, "-protocol") {
			return args[i+1]
		}
	}
	return ""
}

// A host runner of an older build mints the ids of processes itself, and is used like any other.
func TestTheRunnerSpeaksAnOlderProtocolWhenToldTo(t *testing.T) {
	l := newLab(t)
	host := l.legacyHost()
	l.serve()
	l.ok("create", "box")
	if out := l.ok("exec", "box", "echo $((6*7))"); out != "42\n" {
		t.Errorf("exec printed %q", out)
	}
	l.ok("down")
	if err := host.Wait(); err != nil {
		t.Errorf("the host ended with %v", err)
	}
}

// legacyHost starts a host runner of protocol 1 by hand and returns when it listens. A server that is started then uses it, and down
// ends it.
func (l *lab) legacyHost() *exec.Cmd {
	l.t.Helper()
	if err := makeStateDir(l.state()); err != nil {
		l.t.Fatal(err)
	}
	host := l.command(context.Background(), "runner", "--host", l.state(), "--protocol", "1")
	if err := host.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = host.Process.Kill() })
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 3000 {
		if _, err := os.Stat(filepath.Join(l.state(), "host.sock")); err == nil {
			return host
		}
		<-tick.C
	}
	l.t.Fatal("the host runner does not listen")
	return nil
}
