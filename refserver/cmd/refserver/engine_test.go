package main

import (
	"strings"
	"syscall"
	"testing"
)

// R101, R112: on a Docker Engine the commands do the same, and a server that was killed finds its sandboxes again.
func TestTheDockerBackendDoesTheSame(t *testing.T) {
	e := shared.Engine(t)
	l := newLab(t)
	l.env = append(l.env, onDocker(t, e, "same")...)
	s := l.serve()
	l.ok("create", "box", "-e", "GIVEN=yes")
	l.ok("exec", "box", "echo $GIVEN >kept")
	s.end(syscall.SIGKILL)
	l.serve()
	if out := l.ok("exec", "box", "cat kept; id -u"); !strings.Contains(out, "yes\n65534\n") {
		t.Errorf("after the server was killed the sandbox says %q", out)
	}
	l.ok("stop", "box")
	l.ok("create", "box")
	if out := l.ok("exec", "box", "cat kept"); !strings.Contains(out, "yes\n") {
		t.Errorf("the resumed sandbox says %q", out)
	}
	l.ok("rm", "box")
}

func TestTheRunnerCommandTakesTheArgumentsOfARunner(t *testing.T) {
	l := newLab(t)
	if out, code := l.run("runner", "--", "-id", "box"); code == 0 || !strings.Contains(out, "-listen is missing") {
		t.Errorf("ended with %d: %s", code, out)
	}
	if out, code := l.run("--backend", "docker", "--runner-binary", "/etc/passwd", "--listen", "127.0.0.1:0"); code == 0 || !strings.Contains(out, "is no Linux program") {
		t.Errorf("a runner that is none: ended with %d: %s", code, out)
	}
}
