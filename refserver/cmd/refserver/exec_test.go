package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver/client"
)

func TestExecPassesStdinOnByteForByteAndEndsWithTheCommandsCode(t *testing.T) {
	l := newLab(t)
	l.serve()
	l.ok("create", "box")
	content := strings.Repeat("bytes \x00\xff\n", 80_000) // more than one request
	for _, c := range []struct {
		args  []string
		stdin string
		want  string
		code  int
	}{
		{[]string{"exec", "-i", "box", "cat"}, "hi\n", "hi\n", 0},
		{[]string{"exec", "-i", "box", "--", "md5sum"}, content, "4588e41bf790f18f037d7949a28177bd  -\n", 0},
		{[]string{"exec", "-i", "box", "cat; exit 7"}, "", "", 7},
		{[]string{"exec", "-i", "box", "--", "head", "-c1"}, content, "b", 0}, // it leaves the rest unread
		{[]string{"exec", "-i", "box", "exec <&-; sleep 0.5; echo goes on"}, content, "goes on\n", 0},
		{[]string{"exec", "-i", "box", "--", "no-such-program"}, "hi", "", exitNotFound},
		{[]string{"exec", "box", "cat"}, "not asked for", "", 0},
	} {
		cmd := l.command(t.Context(), c.args...)
		cmd.Stdin = strings.NewReader(c.stdin)
		out, err := cmd.Output()
		if code := cmd.ProcessState.ExitCode(); code != c.code || string(out) != c.want {
			t.Errorf("%q ended with %d and %q, %v, want %d and %q", c.args, code, out, err, c.code, c.want)
		}
	}
}

func TestStdinIsPassedOnAsItComes(t *testing.T) {
	l := newLab(t)
	l.serve()
	l.ok("create", "box")
	cmd := l.command(t.Context(), "exec", "-i", "box", "cat")
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(out)
	for _, line := range []string{"one\n", "two\n"} {
		_, err := io.WriteString(in, line)
		got, readErr := answers.ReadString('\n')
		if err != nil || readErr != nil || got != line {
			t.Fatalf("got %q, %v, %v, want %q", got, err, readErr, line)
		}
	}
	if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
		t.Error(err)
	}
}

// What is printed faster than it is taken waits, also while stdin is passed on.
func TestNothingOfACommandsOutputIsLostHoweverSlowItIsTaken(t *testing.T) {
	l := newLab(t)
	s := l.serve()
	l.ok("create", "box")
	cmd := l.command(t.Context(), "exec", "-i", "box", `read line; echo $line; seq -w 150000 | head -c 1048576 >f; for i in $(seq 24); do cat f; echo $i >at; done`)
	cmd.Stdin = strings.NewReader("begin\nunread")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if first, err := lines.ReadString('\n'); err != nil || first != "begin\n" {
		t.Fatalf("got %q, %v", first, err)
	}
	if at := s.standsStill("box", "at"); at == "24\n" {
		t.Error("the command printed all there is, and nobody had read it")
	}
	const size = 24 << 20
	sum := sha256.New()
	n, err := io.Copy(sum, lines)
	if err := errors.Join(err, cmd.Wait()); err != nil || n != size {
		t.Errorf("read %d bytes of %d, error %v", n, size, err)
	}
	if hex.EncodeToString(sum.Sum(nil)) != numbers(size) {
		t.Error("the bytes are others than were printed")
	}
}

// standsStill returns the content of a file once it has not changed for a good while.
func (s *server) standsStill(box, file string) (content string) {
	s.lab.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for steady := 0; steady < 30; steady++ {
		<-tick.C
		now := ""
		if r, err := s.client().ReadFile(s.lab.t.Context(), box, file); err == nil {
			b, _ := io.ReadAll(r)
			r.Close()
			now = string(b)
		}
		if now != content || now == "" {
			steady, content = 0, now
		}
	}
	return content
}

// numbers returns the sum of size bytes, each MiB of them the numbers from 1 on, six digits each.
func numbers(size int) string {
	var mib []byte
	for i := 1; len(mib) < 1<<20; i++ {
		mib = fmt.Appendf(mib, "%06d\n", i)
	}
	sum := sha256.New()
	for range size >> 20 {
		sum.Write(mib[:1<<20])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// begun starts an exec that prints a line and goes on, and waits for the line.
func begun(t *testing.T, l *lab, args ...string) (cmd *exec.Cmd, stderr *bytes.Buffer) {
	t.Helper()
	cmd = l.command(context.Background(), append(args, "box", "echo begun; sleep 600")...)
	stderr = new(bytes.Buffer)
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended unless the test failed
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return cmd, stderr
}

var goesOn = regexp.MustCompile("the command goes on as process (proc_\\w+): `refserver logs -f box (proc_\\w+)` follows it")

func TestAnInterruptedExecSaysWhatBecomesOfTheCommand(t *testing.T) {
	l := newLab(t)
	s := l.serve()
	l.ok("create", "box")
	for _, flags := range [][]string{{"exec"}, {"exec", "-i"}, {"exec", "--kill-on-disconnect"}, {"exec", "-i", "--kill-on-disconnect"}} {
		cmd, stderr := begun(t, l, flags...)
		_ = cmd.Process.Signal(syscall.SIGINT)
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != exitInterrupted {
			t.Errorf("%v ended with %d, want %d", flags, code, exitInterrupted)
		}
		said := stderr.String()
		if flags[len(flags)-1] == "--kill-on-disconnect" {
			if !strings.Contains(said, "is killed, as --kill-on-disconnect asks") {
				t.Errorf("%v says %q", flags, said)
			}
			continue
		}
		m := goesOn.FindStringSubmatch(said)
		if m == nil || m[1] != m[2] || strings.Count(said, "\n") != 1 {
			t.Fatalf("%v says %q", flags, said)
		}
		if p, err := (client.Process{Client: s.client(), Sandbox: "box", ID: m[1]}).Get(t.Context()); err != nil || !p.Running {
			t.Errorf("the process that goes on is %+v, %v", p, err)
		}
	}
}

func TestAnExecWhoseServerDiesSaysWhatBecomesOfTheCommand(t *testing.T) {
	l := newLab(t)
	s := l.serve()
	l.ok("create", "box")
	cmd, stderr := begun(t, l, "exec")
	s.end(syscall.SIGKILL)
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitUnknown {
		t.Errorf("it ended with %d, want %d", code, exitUnknown)
	}
	m := goesOn.FindStringSubmatch(stderr.String())
	if m == nil || !strings.Contains(stderr.String(), "the connection broke off") {
		t.Fatalf("it says %q", stderr)
	}
	l.serve()
	if got := l.ok("logs", "box", m[1]); got != "begun\n" {
		t.Errorf("logs prints %q", got)
	}
}

func TestAnExecWhoseReaderIsGoneEndsSilentlyLikeAnyTool(t *testing.T) {
	l := newLab(t)
	l.serve()
	l.ok("create", "box")
	cmd := l.command(t.Context(), "exec", "--kill-on-disconnect", "box", "yes")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	out.Close()
	_ = cmd.Wait()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGPIPE || stderr.Len() > 0 {
		t.Errorf("it ended with %v and said %q, want SIGPIPE and nothing", cmd.ProcessState, stderr.String())
	}
}

func TestOutputThatWasLostMakesAnExecFail(t *testing.T) {
	zero := 0
	s := show{whole: true}
	_ = s.event(wire.Event{Event: wire.EventGap, Stream: "stdout", From: 1, To: 9})
	err := s.event(wire.Event{Event: wire.EventExit, ExitCode: &zero})
	if !errors.Is(err, errLost) || exitCode(execError{err}, io.Discard) != exitExec {
		t.Errorf("the end is %v", err)
	}
}

func TestExecTellsItsOwnFailuresFromThoseOfTheCommand(t *testing.T) {
	l := newLab(t)
	if out, code := l.run("exec", "box", "true"); code != exitExec || !strings.Contains(out, "no server runs") {
		t.Errorf("without a server: %d %s", code, out)
	}
	l.serve()
	if out, code := l.run("exec", "box", "true"); code != exitExec || !strings.HasPrefix(out, "refserver: 404 not_found: ") {
		t.Errorf("without the sandbox: %d %s", code, out)
	}
	if out, code := l.run("exec", "", "true"); code != exitUsage || !strings.HasPrefix(out, "refserver: <id>: it is empty\n") {
		t.Errorf("without an id, so that nothing was sent: %d %s", code, out)
	}
	if out, code := l.run("exec", "-i", "-d", "box", "true"); code != exitUsage {
		t.Errorf("with flags that exclude each other: %d %s", code, out)
	}
	if help := l.ok("exec", "--help"); !strings.Contains(help, "124") || !strings.Contains(help, "125") || !strings.Contains(help, "130") {
		t.Errorf("the help does not list the codes: %s", help)
	}
}

func TestJSONOfAStreamIsWhatTheServerSent(t *testing.T) {
	l := newLab(t)
	s := l.serve()
	l.ok("create", "box")
	id := strings.TrimSpace(l.ok("exec", "-d", "box", "echo hi; printf '\\377'"))
	if _, code := l.run("logs", "-f", "box", id); code != 0 {
		t.Fatalf("logs -f ended with %d", code)
	}
	stream, err := client.Process{Client: s.client(), Sandbox: "box", ID: id}.Output(t.Context(), 0, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, err := range stream.All() {
		if err != nil {
			t.Fatal(err)
		}
		want.Write(stream.Line())
		want.WriteString("\n")
	}
	got := l.ok("logs", "-f", "--json", "box", id)
	if got != want.String() || strings.Contains(got, `"pid"`) || !strings.Contains(got, `"data_b64":`) {
		t.Errorf("got %s, want %s", got, want.String())
	}
}
