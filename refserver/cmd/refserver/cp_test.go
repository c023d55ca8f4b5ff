package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

func TestACopyThatBreaksOffLeavesNoNewFile(t *testing.T) {
	lost := errors.New("connection lost")
	half := func() io.Reader { return io.MultiReader(strings.NewReader("half"), iotest.ErrReader(lost)) }
	dir := t.TempDir()
	for _, to := range []string{filepath.Join(dir, "new"), dir} {
		if err := save(to, "inside", half()); !errors.Is(err, lost) {
			t.Errorf("the error is %v, want %v", err, lost)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	old := filepath.Join(dir, "old")
	if err := os.WriteFile(old, []byte("what was there"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := save(old, "inside", half()); !errors.Is(err, lost) {
		t.Errorf("the error is %v, want %v", err, lost)
	}
	if _, err := os.Stat(old); err != nil {
		t.Errorf("a file that was there before: %v", err)
	}
}

func TestCpOfADirectoryIsRefusedBeforeAnythingIsSent(t *testing.T) {
	l := newLab(t)
	l.serve()
	l.ok("create", "box")
	out, code := l.run("cp", l.home, "box:home")
	if code != exitFailed || out != "refserver: cp: "+l.home+" is a directory, and one file is copied at a time; see refserver cp --help\n" {
		t.Errorf("it ended with %d: %s", code, out)
	}
}
