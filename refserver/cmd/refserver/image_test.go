package main

import (
	"strings"
	"syscall"
	"testing"
)

// The first sandbox finds the image and the runner that the command has made.
func TestTheImageCommandMakesWhatTheFirstSandboxNeeds(t *testing.T) {
	l, flags := onEngine(t, "images")
	lines := strings.Split(strings.TrimSpace(l.ok("image", "--runner-binary", shared.Engine(t).Runner)), "\n")
	name := lines[len(lines)-1]
	if !strings.HasPrefix(name, "keepwell/sandbox:") {
		t.Fatalf("it printed %q", lines)
	}
	if again := l.ok("image", "--runner-binary", shared.Engine(t).Runner); again != name+"\n" {
		t.Errorf("a second time it printed %q, want %q and nothing else", again, name)
	}
	s := l.serve(flags...)
	l.ok("create", "box")
	if said := s.stderr.String(); strings.Contains(said, "fetching image") {
		t.Errorf("the server has made the image once more: %s", said)
	}
	if out := l.ok("exec", "box", "echo $0"); !strings.Contains(out, "sh") {
		t.Errorf("its shell is %q", out)
	}
	l.ok("rm", "box")
	s.end(syscall.SIGTERM)
	if out := l.ok("image", "--image", name); out != name+"\n" {
		t.Errorf("with --image it printed %q, want %q", out, name)
	}
}

func TestTheImageCommandSaysWhenThereIsNoEngine(t *testing.T) {
	l := newLab(t)
	l.env = append(l.env, "DOCKER_HOST=unix://"+l.home+"/none")
	if out, code := l.run("image"); code != exitFailed || !strings.Contains(out, l.home+"/none") {
		t.Errorf("ended with %d: %s", code, out)
	}
	if out, code := l.run("image", "--runner-binary", "/etc/passwd"); code != exitFailed || !strings.Contains(out, "is no Linux program") {
		t.Errorf("ended with %d: %s", code, out)
	}
	if out := l.ok("image", "--help"); !strings.Contains(out, "DOCKER_HOST") || !strings.Contains(out, "no registry") {
		t.Errorf("its help is %s", out)
	}
}
