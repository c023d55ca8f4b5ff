package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// plain is the program as its users have it. With the race detector the start of a process costs four times as much, which is most
// of what a command does that asks a server one thing and ends. Servers, host runners and the commands that do several things at
// once are this binary: those are watched.
var plain plainProgram

type plainProgram struct {
	once sync.Once
	dir  string // that the program is built in, if it is
	err  error
}

// path returns what to run as the program: without the race detector this binary will do.
func (p *plainProgram) path(t testing.TB) string {
	t.Helper()
	if raceDetector {
		return p.built(t)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return self
}

// built returns where the program lies, which is built once.
func (p *plainProgram) built(t testing.TB) string {
	t.Helper()
	p.once.Do(p.build)
	if p.err != nil {
		t.Fatal(p.err)
	}
	return filepath.Join(p.dir, "refserver")
}

func (p *plainProgram) build() {
	if p.dir, p.err = os.MkdirTemp("", "kwplain"); p.err != nil {
		return
	}
	if out, err := exec.Command("go", "build", "-o", p.dir, ".").CombinedOutput(); err != nil {
		p.err = fmt.Errorf("go build: %w\n%s", err, out)
	}
}

// remove is for when no test runs any more.
func (p *plainProgram) remove() error {
	if p.dir == "" {
		return nil
	}
	return os.RemoveAll(p.dir)
}
