package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/keepwell-go/keepwell/backend/docker/enginetest"
)

// onEngine returns a lab whose commands find the engine of the tests, and the flags of a server on it. In the end nothing may be left
// of the owner.
func onEngine(t *testing.T, owner string) (*lab, []string) {
	t.Helper()
	e := shared.Engine(t)
	l := newLab(t)
	t.Cleanup(func() { e.Clean(t, owner) })
	l.env = append(l.env, "DOCKER_HOST=unix://"+e.Socket, "KEEPWELL_OWNER="+owner)
	return l, []string{"--backend", "docker", "--runner-binary", e.Runner, "--sweep-every", "1h"}
}

// R104: down ends what this owner has on the engine and nothing else, and keeps the workspaces.
func TestDownStopsTheSandboxesOfTheOwnerOnDocker(t *testing.T) {
	other := newSite(t, "downother")
	other.create("a").want(t, 201, "")
	l, flags := onEngine(t, "downs")
	s := l.serve(flags...)
	for _, id := range []string{"a", "b", "c"} {
		l.ok("create", id)
	}
	l.ok("exec", "a", "echo mine >kept")
	l.ok("stop", "c")
	s.end(syscall.SIGTERM)
	if said := s.stderr.String(); !strings.Contains(said, "`refserver down --backend docker --owner downs`") {
		t.Errorf("at its end the server said %s", said)
	}
	for _, want := range []string{"stopped 2 sandboxes; the workspaces are kept\n", "stopped 0 sandboxes; the workspaces are kept\n"} {
		if out := l.ok("down", "--backend", "docker"); out != want {
			t.Errorf("down said %q, want %q", out, want)
		}
	}
	other.get("a").want(t, 200, "")
	other.destroy("a").want(t, 200, "")
	l.serve(flags...)
	l.ok("create", "a")
	if out := l.ok("exec", "a", "cat kept"); out != "mine\n" {
		t.Errorf("the resumed sandbox says %q", out)
	}
	l.ok("rm", "a", "b", "c")
}

// What is not known is not said to be stopped.
func TestDownSaysWhatItCouldNotStop(t *testing.T) {
	e := shared.Engine(t)
	l, flags := onEngine(t, "downfails")
	p := enginetest.NewProxy(t, e)
	l.serve(flags...)
	l.ok("create", "a")
	mend := p.Fault("stuck", enginetest.Once("/stop", enginetest.Refuse))
	l.env = append(l.env, "DOCKER_HOST=unix://"+p.Socket)
	if out, code := l.run("down", "--backend", "docker"); code != exitFailed || !strings.Contains(out, `stop "a"`) || !strings.Contains(out, "stuck") {
		t.Errorf("down ended with %d: %s", code, out)
	}
	_ = mend()
	if out := l.ok("down", "--backend", "docker"); !strings.HasPrefix(out, "stopped 1 sandbox;") {
		t.Errorf("down said %q", out)
	}
	l.ok("rm", "a")
}

func TestDownWithoutAStateDirectoryDoesNotGuessWhoseSandboxesToStop(t *testing.T) {
	l := newLab(t)
	if out, code := l.run("down", "--backend", "docker"); code != exitFailed || !strings.Contains(out, "give --owner") {
		t.Errorf("ended with %d: %s", code, out)
	}
	if _, err := os.Stat(filepath.Join(l.state(), keyFile)); err == nil {
		t.Error("it has made a key")
	}
}
