package runner_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

func line(text string) wire.Command      { return wire.Command{Line: text} }
func argv(args ...string) wire.Command   { return wire.Command{Argv: args} }
func ptr[T any](v T) *T                  { return &v }
func sum(b []byte) string                { return fmt.Sprintf("%x", sha256.Sum256(b)) }
func (r result) is(out, err string) bool { return string(r.stdout) == out && string(r.stderr) == err }

func TestExecStreamsOutputThenExactlyOneExit(t *testing.T) { // R99
	c := startDaemon(t).add("a")
	res := c.sh("echo out; echo err >&2; exit 7")
	if got := res.code(t); got != 7 || !res.is("out\n", "err\n") {
		t.Errorf("exit code %d, stdout %q, stderr %q", got, res.stdout, res.stderr)
	}
	if res.start.PID == 0 || !minted(res.start.ID) {
		t.Errorf("start %+v", res.start)
	}
	res = c.exec(wire.StartRequest{Cmd: argv("printf", "%s-%s", "a b", "$HOME")})
	if got := res.code(t); got != 0 || !res.is("a b-$HOME", "") {
		t.Errorf("exit code %d, stdout %q", got, res.stdout)
	}
	res = c.sh("kill -9 $$")
	if e := res.last; e.ExitCode != nil || e.Signal == nil || *e.Signal != "SIGKILL" || e.TimedOut {
		t.Errorf("a killed command ended with %+v", e)
	}
}

func TestEnvironmentIsABaseTheSandboxAndTheRequest(t *testing.T) { // R103
	d := startDaemon(t, "KEEPWELL_CANARY=secret")
	c := d.add("a")
	res := c.exec(wire.StartRequest{Cmd: argv("env"), Env: map[string]string{"MINE": "1", "LANG": "C"}})
	env := "\n" + string(res.stdout)
	for _, want := range []string{"\nMINE=1\n", "\nLANG=C\n", "\nHOME=" + c.home + "\n", "\nPATH=/usr", "\nUSER="} {
		if !strings.Contains(env, want) {
			t.Errorf("%q is missing in %s", want, env)
		}
	}
	for _, leak := range []string{"CANARY", "secret", asRunner, "GOCOVERDIR"} {
		if strings.Contains(env, leak) {
			t.Errorf("%s reached the process: %s", leak, env)
		}
	}
}

// A core would be written where the kernel is told to write it, which may be outside, and has whatever the command was given.
func TestNoCommandLeavesACore(t *testing.T) {
	c := startDaemon(t).add("a")
	if res := c.sh("ulimit -Sc; ulimit -Hc; ulimit -c unlimited 2>/dev/null && echo raised"); !res.is("0\n0\n", "") {
		t.Errorf("the limits are %q", res.stdout)
	}
}

func TestCwdLiesInsideTheWorkspace(t *testing.T) {
	c := startDaemon(t).add("a")
	c.ok("POST", "/files/mkdir?path=sub/dir", nil, nil)
	c.ok("PUT", "/files/write?path=file", "x", nil)
	for _, cwd := range []string{"sub/dir", c.home + "/sub/dir", "./sub//dir/"} {
		res := c.exec(wire.StartRequest{Cmd: argv("pwd"), Cwd: cwd})
		if got := strings.TrimSpace(string(res.stdout)); got != filepath.Join(c.home, "sub/dir") {
			t.Errorf("cwd %q led to %q", cwd, got)
		}
	}
	for cwd, code := range map[string]string{
		"..": wire.CodeUnsafePath, "/etc": wire.CodeUnsafePath, "sub/../..": wire.CodeUnsafePath,
		"nowhere": wire.CodeNotFound, "file": wire.CodeBadRequest, "a\x00": wire.CodeUnsafePath,
	} {
		c.refused("POST", "/exec", wire.StartRequest{Cmd: argv("pwd"), Cwd: cwd}, 400, code)
	}
}

func TestStdinIsTheWholeInput(t *testing.T) {
	c := startDaemon(t).add("a")
	big := strings.Repeat("0123456789abcde\n", 1<<16) // 1 MiB: more than any pipe holds
	res := c.exec(wire.StartRequest{Cmd: argv("sha256sum"), Stdin: &big})
	if got := string(res.stdout); !strings.HasPrefix(got, sum([]byte(big))) {
		t.Errorf("stdin arrived as %s", got)
	}
	if res := c.exec(wire.StartRequest{Cmd: argv("cat"), Stdin: ptr("")}); res.code(t) != 0 || !res.is("", "") {
		t.Errorf("empty stdin: %+v", res)
	}
	if res := c.exec(wire.StartRequest{Cmd: argv("cat")}); res.code(t) != 0 || !res.is("", "") {
		t.Errorf("no stdin: %+v", res)
	}
	if res := c.exec(wire.StartRequest{Cmd: argv("true"), Stdin: &big}); res.code(t) != 0 {
		t.Errorf("stdin that is not read: %+v", res)
	}
}

func TestOutputOfAnyKindArrivesWhole(t *testing.T) {
	c := startDaemon(t).add("a")
	res := c.sh(`head -c 1500000 /dev/zero; printf '\377\376 gr\303\274\303\237e'; printf '\303' >&2; sleep 0.05; printf '\274\344' >&2`)
	want := strings.Repeat("\x00", 1500000) + "\xff\xfe gr\u00fc\u00dfe"
	if res.code(t) != 0 || sum(res.stdout) != sum([]byte(want)) {
		t.Errorf("%d bytes arrived of %d, or others", len(res.stdout), len(want))
	}
	if string(res.stderr) != "\u00fc\xe4" {
		t.Errorf("stderr %q", res.stderr)
	}
}

func TestASequenceIsNotSplitBetweenEvents(t *testing.T) {
	c := startDaemon(t).add("a")
	s := c.stream("POST", "/exec", wire.StartRequest{Cmd: line(`printf 'a\303'; sleep 0.1; printf '\274b'`)})
	text := ""
	for ev := s.next(); ev.Event != wire.EventExit; ev = s.next() {
		if ev.DataB64 != nil || strings.ContainsRune(ev.Data, '\uFFFD') {
			t.Errorf("event %+v has a part of a sequence", ev)
		}
		text += ev.Data
	}
	if text != "a\u00fcb" {
		t.Errorf("text %q", text)
	}
}

func TestTimeoutKillsTheWholeTree(t *testing.T) {
	c := startDaemon(t).add("a")
	res := c.exec(wire.StartRequest{Cmd: line("setsid sleep 1000 & echo $!; sleep 1000"), Timeout: 0.3})
	if e := res.last; !e.TimedOut || e.Signal == nil || *e.Signal != "SIGKILL" || e.ExitCode != nil {
		t.Errorf("exit %+v", e)
	}
	pid := strings.TrimSpace(string(res.stdout))
	c.eventually("its descendants are gone", func() bool { return pid != "" && stateOf(pid) == "" })
	if res := c.exec(wire.StartRequest{Cmd: line("exit 3"), Timeout: 60}); res.code(t) != 3 || res.last.TimedOut {
		t.Errorf("a command within its timeout ended with %+v", res.last)
	}
}

// gone asserts that no process has this pid, which was a descendant's, unless one that waits to be reaped.
func gone(t testing.TB, pid string) {
	t.Helper()
	if state := stateOf(pid); pid == "" || state != "" && state != "Z" && state != "X" {
		t.Errorf("process %q lives on in state %s", pid, state)
	}
}

// stateOf returns the letter of the state of a process, "" if there is none.
func stateOf(pid string) string {
	b, _ := os.ReadFile("/proc/" + pid + "/stat")
	_, after, _ := strings.Cut(string(b), ") ")
	state, _, _ := strings.Cut(after, " ")
	return state
}

func TestExitComesThoughAGrandchildKeepsThePipe(t *testing.T) {
	c := startDaemon(t).add("a")
	res := c.sh("sleep 1000 & echo started")
	if res.code(t) != 0 || !res.last.Truncated || !res.is("started\n", "") {
		t.Errorf("stdout %q, exit %+v", res.stdout, res.last)
	}
	if res := c.sh("sleep 1000 >/dev/null 2>&1 & echo started"); res.code(t) != 0 || res.last.Truncated {
		t.Errorf("with a pipe that nobody keeps: %+v", res.last)
	}
}

func TestWhoKeepsThePipeCanGoOnWriting(t *testing.T) {
	c := startDaemon(t).add("a")
	res := c.sh("(while [ ! -e go ]; do sleep 0.05; done; echo late; echo alive > proof) & echo early")
	if !res.last.Truncated || !res.is("early\n", "") {
		t.Fatalf("stdout %q, exit %+v", res.stdout, res.last)
	}
	c.ok("PUT", "/files/write?path=go", "", nil)
	c.eventually("the heir of the pipe writes a file", func() bool {
		status, text := c.download("path=proof")
		return status == 200 && text == "alive\n"
	})
	res = c.stream("GET", "/processes/"+res.start.ID+"/output?follow=1", nil).rest()
	if !res.is("early\nlate\n", "") || !res.last.Truncated {
		t.Errorf("output afterwards %q, exit %+v", res.stdout, res.last)
	}
}

// eventually waits for what is asked for over HTTP, and gives up after a long time.
func (c *client) eventually(what string, is func() bool) {
	c.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 3000 {
		if is() {
			return
		}
		<-tick.C
	}
	c.t.Fatalf("never: %s", what)
}

func TestACommandThatCannotStartIsRefusedAndLeavesNothing(t *testing.T) { // R99
	c := startDaemon(t).add("a")
	c.ok("PUT", "/files/write?path=plain&mode=644", "not a program", nil)
	c.ok("PUT", "/files/write?path=garbage&mode=755", "not a program", nil)
	for _, cmd := range []wire.Command{
		argv("no-such-command"), argv("/no/such/command"), argv("./plain"), argv("./garbage"), argv(c.home), argv("echo", strings.Repeat("x", 200<<10)),
	} {
		for _, route := range []string{"/exec", "/processes"} {
			text := c.refused("POST", route, wire.StartRequest{ID: "mine", Cmd: cmd}, 400, wire.CodeCannotStart)
			if !strings.Contains(text, cmd.Argv[0]) {
				t.Errorf("the user is told %q, which does not name %s", text, cmd.Argv[0])
			}
		}
	}
	var list []wire.Process
	c.ok("GET", "/processes", nil, &list)
	if len(list) != 0 {
		t.Errorf("left behind: %+v", list)
	}
	if res := c.sh("no-such-command"); res.code(t) != 127 {
		t.Errorf("in a shell: %+v", res.last)
	}
	if res := c.exec(wire.StartRequest{ID: "mine", Cmd: argv("true")}); res.code(t) != 0 {
		t.Error("the id of a command that could not start was not free again")
	}
}

func TestTwoHundredFailingCommandsTellTheirTrueCodes(t *testing.T) { // R97
	c := startDaemon(t).add("a")
	codes := make(chan error, 200)
	for i := range cap(codes) {
		go func() {
			want := i%255 + 1
			if got := c.sh(fmt.Sprintf("exit %d", want)); got.last.ExitCode == nil || *got.last.ExitCode != want {
				codes <- fmt.Errorf("exit %d ended with %+v", want, got.last)
				return
			}
			codes <- nil
		}()
	}
	for range cap(codes) {
		if err := <-codes; err != nil {
			t.Error(err)
		}
	}
}
