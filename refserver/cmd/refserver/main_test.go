package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend/local"
	"github.com/keepwell-go/keepwell/refserver/client"
)

// TestMain makes the test binary the program itself when its arguments are not the test's: the server under test starts its
// host runner by executing itself.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || !strings.HasPrefix(os.Args[1], "-test.") {
		main()
	}
	code := m.Run()
	shared.Stop()
	if err := plain.remove(); err != nil {
		fmt.Println(err)
		code = 1
	}
	os.Exit(code)
}

// lab is a home directory of its own with at most one server at a time. It cleans up after itself.
type lab struct {
	t    testing.TB
	home string
	env  []string // further variables, NAME=VALUE
}

func newLab(t *testing.T) *lab {
	t.Helper()
	t.Parallel() // most of a test is waiting for processes
	// Socket paths are short, those of test directories need not be.
	home, err := os.MkdirTemp("", "kw")
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, home: home}
	t.Cleanup(func() {
		// As the command down does it, without a process more for each test.
		if _, err := local.Down(context.Background(), local.Config{StateDir: l.state()}); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *lab) state() string { return filepath.Join(l.home, ".local", "state", "keepwell") }

func (l *lab) command(ctx context.Context, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		l.t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Dir = l.home
	cmd.Env = append([]string{
		"HOME=" + l.home, "PATH=" + os.Getenv("PATH"),
		"GORACE=atexit_sleep_ms=0", // else the race detector sleeps for a second at the end of each command
	}, l.env...)
	return cmd
}

// run runs a command to its end.
func (l *lab) run(args ...string) (output string, code int) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := l.command(ctx, args...)
	cmd.Path = plain.path(l.t)
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), exit.ExitCode()
	} else if err != nil {
		l.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out), 0
}

// ok is run for a command that must succeed.
func (l *lab) ok(args ...string) string {
	l.t.Helper()
	out, code := l.run(args...)
	if code != 0 {
		l.t.Fatalf("%v ended with %d: %s", args, code, out)
	}
	return out
}

// server is a running refserver.
type server struct {
	lab     *lab
	cmd     *exec.Cmd
	base    string
	stdout  string // what it printed until it served
	stderr  *syncBuffer
	stopped bool
}

// serve starts a server on a free port and waits until it has said where it is.
func (l *lab) serve(args ...string) *server {
	l.t.Helper()
	s := &server{lab: l, stderr: new(syncBuffer)}
	s.cmd = l.command(context.Background(), append([]string{"--listen=127.0.0.1:0"}, args...)...)
	s.cmd.Stderr = s.stderr
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { s.end(syscall.SIGKILL) })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		s.stdout += lines.Text() + "\n"
		if base, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
			s.base = base
		}
		if strings.HasPrefix(lines.Text(), "try: ") {
			go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the process
			return s
		}
	}
	_ = s.cmd.Wait()
	l.t.Fatalf("the server did not start: %s%s", s.stdout, s.stderr)
	return nil
}

// end sends sig and waits for the process; it returns its exit code, -1 for a signal.
func (s *server) end(sig syscall.Signal) int {
	if s.stopped {
		return -1
	}
	s.stopped = true
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.lab.t.Errorf("signal the server: %v", err)
	}
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

func (s *server) client() *client.Client {
	s.lab.t.Helper()
	token, err := os.ReadFile(filepath.Join(s.lab.state(), "token"))
	if err != nil {
		s.lab.t.Fatal(err)
	}
	return &client.Client{Base: s.base, Token: strings.TrimSpace(string(token))}
}

// syncBuffer collects the log of a process while the test reads it.
type syncBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
