package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// R59
func TestAFlagThatTheBackendDoesNotReadIsRefusedByName(t *testing.T) {
	l := newLab(t)
	for line, want := range map[string]string{
		"--owner x":      "--owner is read with --backend docker alone, and this is --backend local\nrefserver: see refserver --help\n",
		"serve --owner=": "--owner is read",
		"--image alpine": "--image is read",
		"serve --backend local --runner-binary /x":      "--runner-binary is read",
		"--backend docker --require-confinement":        "--require-confinement is read with --backend local alone, and this is --backend docker\n",
		"down --owner x":                                "--owner is read with --backend docker alone, and this is --backend local\nrefserver: see refserver down --help\n",
		"down --backend local --owner x --state /x/y/z": "--owner is read",
	} {
		if out, code := l.run(strings.Fields(line)...); code != exitUsage || !strings.HasPrefix(out, "refserver: "+want) {
			t.Errorf("%s ended with %d: %s, want %d and %s", line, code, out, exitUsage, want)
		}
	}
	if out, code := l.run("runner", "--host", l.home, "--", "-id=x"); code != exitUsage || !strings.Contains(out, "--host") {
		t.Errorf("a runner of both kinds ended with %d: %s", code, out)
	}
	l.env = []string{"KEEPWELL_BACKEND=docker"}
	if out, code := l.run("--require-confinement"); code != exitUsage {
		t.Errorf("--require-confinement with another backend by the variable ended with %d: %s", code, out)
	}
	if _, err := os.Stat(l.state()); !os.IsNotExist(err) {
		t.Errorf("a server that was refused left a state directory: %v", err)
	}
}

// R59
func TestAVariableThatTheBackendDoesNotReadIsAWarning(t *testing.T) {
	l := newLab(t)
	l.env = []string{"KEEPWELL_IMAGE=alpine", "KEEPWELL_OWNER=x", "KEEPWELL_RUNNER_BINARY="}
	warning := func(name string) string {
		return "refserver: warning: the environment variable " + name + " is not read with --backend local\n"
	}
	s := l.serve()
	s.end(syscall.SIGTERM)
	for _, name := range []string{"KEEPWELL_IMAGE", "KEEPWELL_OWNER"} {
		if said := s.stderr.String(); strings.Count(said, warning(name)) != 1 {
			t.Errorf("the server said %s, want one warning of %s", said, name)
		}
	}
	if said := s.stderr.String(); strings.Contains(said, "KEEPWELL_RUNNER_BINARY") {
		t.Errorf("the server said %s of a variable that is empty", said)
	}
	if out := l.ok("down"); !strings.HasPrefix(out, warning("KEEPWELL_OWNER")+"stopped 0 sandboxes") {
		t.Errorf("down said %s", out)
	}
}
