package spawn_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend/runner/spawn"
)

const (
	testUID     = 1_700_000_000 // sandboxes of these tests count up from here
	ordinaryUID = testUID - 1   // nobody's, so that nobody else's sweep meets it
	deadline    = 60 * time.Second
)

var lastUID atomic.Uint32

func isRoot() bool { return os.Getuid() == 0 }

func needRoot(tb testing.TB) {
	tb.Helper()
	if !isRoot() {
		tb.Skip("needs root: a uid of its own for the sandbox")
	}
}

func newSpawner(tb testing.TB, cfg spawn.Config) *spawn.Spawner {
	tb.Helper()
	s, err := spawn.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

// sandbox fills in a home that the sandbox owns and, as root, a uid that no other test has.
func sandbox(tb testing.TB, l spawn.Limits) spawn.Limits {
	tb.Helper()
	if l.Name == "" {
		l.Name = tb.Name()
	}
	dir, err := os.MkdirTemp("", "spawn")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	l.Home = filepath.Join(dir, "home")
	err = os.Chmod(dir, 0o755)
	if err == nil {
		err = os.Mkdir(l.Home, 0o700)
	}
	if err == nil && isRoot() {
		l.UID = testUID + uint32(os.Getpid())<<8%(1<<24) + lastUID.Add(1)
		l.GID = l.UID
		err = os.Chown(l.Home, int(l.UID), int(l.GID))
	}
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// cell is a confinement with its home, which is emptied of processes in the end.
type cell struct {
	*spawn.Confinement
	home string
	uid  uint32
	tb   testing.TB
}

func confine(tb testing.TB, s *spawn.Spawner, l spawn.Limits) cell {
	tb.Helper()
	l = sandbox(tb, l)
	return confineAs(tb, s, l)
}

func confineAs(tb testing.TB, s *spawn.Spawner, l spawn.Limits) cell {
	tb.Helper()
	c, err := s.Confine(l)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.KillAll(within(tb)); err != nil {
			tb.Error(err)
		}
		c.Close()
	})
	return cell{c, l.Home, l.UID, tb}
}

func within(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	tb.Cleanup(cancel)
	return ctx
}

func devNull(tb testing.TB) *os.File {
	tb.Helper()
	f, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { f.Close() })
	return f
}

// sh starts a shell script in the home, whose output is read from the reader until the last process that writes to it is gone.
func (c cell) sh(id, script string, args ...string) (*spawn.Process, io.Reader) {
	c.tb.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		c.tb.Fatal(err)
	}
	c.tb.Cleanup(func() { r.Close() })
	p, err := c.Start(spawn.Command{
		ID: id, Argv: append([]string{"/bin/sh", "-c", script, "sh"}, args...), Dir: c.home,
		Env: []string{"PATH=/usr/bin:/bin", "HOME=" + c.home}, Stdin: devNull(c.tb), Stdout: w, Stderr: w,
	})
	w.Close()
	if err != nil {
		c.tb.Fatal(err)
	}
	return p, r
}

// output runs a script to its end and returns what it wrote and its exit code.
func (c cell) output(script string, args ...string) (string, int) {
	c.tb.Helper()
	p, r := c.sh("output", script, args...)
	out, err := io.ReadAll(r)
	if err != nil {
		c.tb.Fatal(err)
	}
	await(c.tb, p)
	return strings.TrimSpace(string(out)), p.Status().ExitStatus()
}

func await(tb testing.TB, p *spawn.Process) {
	tb.Helper()
	select {
	case <-p.Done():
	case <-time.After(deadline):
		tb.Fatalf("%d was not reaped", p.PID())
	}
}
