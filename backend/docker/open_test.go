package docker_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/docker"
)

// program returns the path of a program that is as static as a runner has to be.
func program(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	main := filepath.Join(dir, "main.go")
	if err := os.WriteFile(main, []byte("package main\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "runner"), main)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build a static program: %v: %s", err, out)
	}
	return filepath.Join(dir, "runner")
}

func TestOpenRefusesWhatCannotWork(t *testing.T) {
	static := program(t)
	good := docker.Config{Owner: "me", Key: []byte("0123456789abcdef"), Runner: static}
	b, err := docker.Open(good)
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	b.Close()
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*docker.Config){
		`Owner is ""`:         func(c *docker.Config) { c.Owner = "" },
		`Owner is "a-b"`:      func(c *docker.Config) { c.Owner = "a-b" }, // a-b's c would be a's b-c
		"Key has 15 bytes":    func(c *docker.Config) { c.Key = c.Key[:15] },
		"Runner is missing":   func(c *docker.Config) { c.Runner = "" },
		"no such file":        func(c *docker.Config) { c.Runner += "x" },
		"is no Linux program": func(c *docker.Config) { c.Runner = text },
		"NoEgress needs":      func(c *docker.Config) { c.NoEgress, c.Publish = true, true },
		"unable to parse":     func(c *docker.Config) { c.Host = "nonsense" },
	} {
		c := good
		spoil(&c)
		if _, err := docker.Open(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("open: %v; want an error with %q", err, want)
		}
	}
}

// R13, R25: an engine that is not there at all is unavailable, whatever is asked of it, and can come later.
func TestAnEngineThatIsDownIsUnavailable(t *testing.T) {
	static := program(t)
	b, err := docker.Open(docker.Config{
		Owner: "me", Key: []byte("0123456789abcdef"), Runner: static, Host: "unix://" + filepath.Join(t.TempDir(), "none"),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	r := backend.Ref{ID: "a", Instance: "i1"}
	_, create := b.Create(t.Context(), backend.Spec{Ref: r})
	_, list := b.List(t.Context())
	stopped, stop := b.Stop(t.Context(), r)
	destroyed, destroy := b.Destroy(t.Context(), r)
	marked, mark := b.Mark(t.Context(), r, true)
	for call, err := range map[string]error{"create": create, "list": list, "stop": stop, "destroy": destroy, "mark": mark, "ping": b.Ping(t.Context())} {
		if !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("%s: %v, want unavailable", call, err)
		}
	}
	for call, out := range map[string]backend.Outcome{"stop": stopped, "destroy": destroyed, "mark": marked} {
		if out != backend.Unknown {
			t.Errorf("%s is %v, want unknown", call, out)
		}
	}
}
