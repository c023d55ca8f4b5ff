package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver/client"
)

func TestServeSaysWhereItIsAndPrintsACurlLineThatCreatesASandbox(t *testing.T) {
	l := newLab(t)
	s := l.serve()
	lines := strings.Split(strings.TrimSpace(s.stdout), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "listening on http://127.0.0.1:") || lines[1] != "token in "+filepath.Join(l.state(), "token") {
		t.Fatalf("stdout is %q", s.stdout)
	}
	if _, err := exec.LookPath("curl"); err != nil {
		skipUnlessRequired(t, "curl")
	}
	out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", strings.TrimPrefix(lines[2], "try: ")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"state":"running"`) {
		t.Fatalf("the line answered %s, %v", out, err)
	}
	if got := l.ok("ls"); strings.Count(got, "running") != 1 {
		t.Errorf("ls shows %s", got)
	}
}

func skipUnlessRequired(t *testing.T, what string) {
	t.Helper()
	for name := range strings.SplitSeq(os.Getenv("KEEPWELL_REQUIRE"), ",") {
		if name == what {
			t.Fatalf("%s is required and not here", what)
		}
	}
	t.Skipf("%s is not here", what)
}

func TestSecretsLieInFilesOfTheOwnerAndNowhereElse(t *testing.T) {
	l := newLab(t)
	s := l.serve()
	for path, want := range map[string]os.FileMode{"": os.ModeDir | 0o700, "token": 0o600, "key": 0o600, "servers": os.ModeDir | 0o700} {
		info, err := os.Stat(filepath.Join(l.state(), path))
		if err != nil || info.Mode() != want {
			t.Errorf("%q has mode %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
	l.ok("create", "box")
	token := s.client().Token
	key, err := os.ReadFile(filepath.Join(l.state(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	said := s.stdout + s.stderr.String()
	for name, secret := range map[string]string{"token": token, "key": strings.TrimSpace(string(key))} {
		if len(secret) < 40 || strings.Contains(said, secret) {
			t.Errorf("the %s is too short, or was printed: %s", name, said)
		}
	}
}

func TestTheTokenOutlivesTheServer(t *testing.T) {
	l := newLab(t)
	first := l.serve()
	token := first.client().Token
	first.end(syscall.SIGKILL)
	if got := l.serve().client().Token; got != token {
		t.Errorf("a restart made a new token")
	}
}

func TestASecretThatAKilledServerHasNotFinishedIsCleared(t *testing.T) {
	l := newLab(t)
	at := func(name string) string { return filepath.Join(l.state(), name) }
	err := os.MkdirAll(l.state(), 0o700)
	for _, name := range []string{"key.123.new", "token.45.new", "token.mine"} {
		err = errors.Join(err, os.WriteFile(at(name), []byte("half of a sec"), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	l.serve()
	for name, stays := range map[string]bool{"key": true, "token": true, "key.123.new": false, "token.45.new": false, "token.mine": true} {
		if _, err := os.Stat(at(name)); stays != (err == nil) {
			t.Errorf("%s: %v; want it to stay: %v", name, err, stays)
		}
	}
}

// R100
func TestAServerKilledWhileACommandPrintsFindsAllOfItAgain(t *testing.T) {
	l := newLab(t)
	first := l.serve()
	api := first.client()
	if _, err := api.Create(t.Context(), client.CreateRequest{ID: "box"}); err != nil {
		t.Fatal(err)
	}
	const lines = 400
	cmd := fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo line $i; i=$((i+1)); [ $((i %% 50)) -ne 0 ] || sleep 0.1; done", lines)
	p, _, err := api.Start(t.Context(), "box", wire.StartRequest{Cmd: wire.Command{Line: cmd}})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := p.Output(t.Context(), 0, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	for ev, err := range stream.All() {
		if err != nil || ev.Event == wire.EventError {
			break // the server is gone
		}
		got = append(got, client.Bytes(ev)...)
		if len(got) > 600 && !first.stopped {
			first.end(syscall.SIGKILL)
		}
	}
	second := l.serve()
	p.Client = second.client()
	sb, err := p.Client.Get(t.Context(), "box")
	if err != nil || sb.State != "running" {
		t.Fatalf("the sandbox is %+v, %v", sb, err)
	}
	rest, err := p.Output(t.Context(), int64(len(got)), 0, true)
	if err != nil {
		t.Fatal(err)
	}
	for ev, err := range rest.All() {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Event == wire.EventGap {
			t.Errorf("bytes were lost: %+v", ev)
		}
		if ev.Event == wire.EventStdout && ev.Offset != int64(len(got)) {
			t.Errorf("output goes on at %d, want %d", ev.Offset, len(got))
		}
		got = append(got, client.Bytes(ev)...)
	}
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	if string(got) != want.String() {
		t.Errorf("got %d bytes, want %d; tail %q", len(got), want.Len(), got[max(0, len(got)-40):])
	}
}

func TestSIGTERMLetsRequestsFinishAndLeavesSandboxesRunning(t *testing.T) {
	l := newLab(t)
	s := l.serve()
	l.ok("create", "box")
	stream, err := s.client().Exec(t.Context(), "box", wire.StartRequest{Cmd: wire.Command{Line: "echo begun; sleep 1; echo done"}})
	if err != nil {
		t.Fatal(err)
	}
	var out string
	code := make(chan int, 1)
	for ev, err := range stream.All() {
		if err != nil {
			t.Fatalf("after %q: %v", out, err)
		}
		out += ev.Data
		if out == "begun\n" && len(code) == 0 && !s.stopped {
			go func() { code <- s.end(syscall.SIGTERM) }()
			waitUntilRefused(t, s.base)
		}
	}
	if out != "begun\ndone\n" {
		t.Errorf("the request under way was cut: %q", out)
	}
	if got := <-code; got != exitDone {
		t.Errorf("the server ended with %d, want %d: %s", got, exitDone, s.stderr)
	}
	if said := s.stderr.String(); !strings.Contains(said, "still running: 1 sandbox.") || !strings.Contains(said, "refserver down") {
		t.Errorf("it did not say what goes on: %s", said)
	}
	l.serve()
	if got := l.ok("exec", "box", "--", "echo", "still here"); got != "still here\n" {
		t.Errorf("after a restart: %q", got)
	}
}

// waitUntilRefused returns once nobody listens at base.
func waitUntilRefused(t *testing.T, base string) {
	t.Helper()
	for deadline := time.Now().Add(8 * time.Second); time.Now().Before(deadline); {
		c, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
		if err != nil {
			return
		}
		c.Close()
	}
	t.Error("the server still accepts connections after SIGTERM")
}

func TestASecondSIGTERMEndsTheServerAtOnce(t *testing.T) {
	l := newLab(t)
	s := l.serve()
	api := s.client()
	if _, err := api.Create(t.Context(), client.CreateRequest{ID: "box"}); err != nil {
		t.Fatal(err)
	}
	stream, err := api.Exec(t.Context(), "box", wire.StartRequest{Cmd: wire.Command{Line: "sleep 1000"}}) // the first would wait for it
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	ended := make(chan int, 1)
	go func() { ended <- s.end(syscall.SIGTERM) }()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		select {
		case code := <-ended:
			if code != -1 {
				t.Errorf("it ended by itself, with code %d", code)
			}
			return
		case <-again.C:
			_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		}
	}
}

func TestDownEndsEverythingAndKeepsTheWorkspaces(t *testing.T) {
	l := newLab(t)
	s := l.serve()
	l.ok("create", "box")
	l.ok("exec", "-d", "box", "--", "sleep", "3600")
	l.ok("exec", "box", "echo kept > note")
	s.end(syscall.SIGTERM)
	if got := l.ok("down"); got != "stopped 1 sandbox; the workspaces are kept\n" {
		t.Errorf("down says %q", got)
	}
	if got := l.ok("down"); got != "stopped 0 sandboxes; the workspaces are kept\n" {
		t.Errorf("a second down says %q", got)
	}
	l.serve()
	if out, code := l.run("exec", "box", "--", "true"); code != exitExec || !strings.Contains(out, "stopped") {
		t.Errorf("a stopped sandbox ran a command: %d %s", code, out)
	}
	l.ok("create", "box")
	if got := l.ok("exec", "box", "--", "cat", "note"); got != "kept\n" {
		t.Errorf("the workspace holds %q", got)
	}
}

func TestTwoServersOnOneStateDirectoryServeTheSameSandboxes(t *testing.T) {
	l := newLab(t)
	a, b := l.serve(), l.serve()
	if _, err := a.client().Create(t.Context(), client.CreateRequest{ID: "box"}); err != nil {
		t.Fatal(err)
	}
	stream, err := b.client().Exec(t.Context(), "box", wire.StartRequest{Cmd: wire.Command{Argv: []string{"echo", "hi"}}})
	if err != nil {
		t.Fatal(err)
	}
	var out string
	for ev, err := range stream.All() {
		if err != nil {
			t.Fatal(err)
		}
		out += ev.Data
	}
	if out != "hi\n" {
		t.Errorf("got %q", out)
	}
}
