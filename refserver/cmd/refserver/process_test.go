package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver/client"
)

func TestExecEndsWithTheCommandsOwnCodeAndKeepsItsStreamsApart(t *testing.T) {
	l := newLab(t)
	l.serve()
	l.ok("create", "box")
	cases := []struct {
		args []string
		want string
		code int
	}{
		{[]string{"--", "echo", "a b"}, "a b\n", 0},
		{[]string{"echo $((40+2)); exit 42"}, "42\n", 42},
		{[]string{"kill -TERM $$"}, "", 128 + 15},
		{[]string{"--timeout=200ms", "--", "sleep", "60"}, "refserver: the command was killed: it ran into its timeout\n", exitTimeout},
		{[]string{"-e", "A=x,y", "echo $A"}, "x,y\n", 0},
		{[]string{"--cwd=/no/such", "--", "true"}, "", exitExec},
		{[]string{"--", "/no/such/program"}, "", exitNotFound},
		{[]string{"--", "no-such-program"}, "", exitNotFound},
		{[]string{"--", "/etc/passwd"}, "", exitCannotRun},
		{[]string{"no-such-program $A"}, "", exitNotFound}, // the shell's own word
		{[]string{"exit"}, "", 0},                          // one word is a line, too
	}
	for _, c := range cases {
		args := append([]string{"exec"}, c.args...)
		at := 1
		for at < len(args) && strings.HasPrefix(args[at], "-") && args[at] != "--" {
			if args[at] == "-e" {
				at++
			}
			at++
		}
		args = append(args[:at:at], append([]string{"box"}, args[at:]...)...)
		out, code := l.run(args...)
		if code != c.code || c.want != "" && out != c.want {
			t.Errorf("%q ended with %d and %q, want %d and %q", c.args, code, out, c.code, c.want)
		}
	}
	cmd := l.command(t.Context(), "exec", "box", "echo out; echo err >&2")
	out, err := cmd.Output()
	if err != nil || string(out) != "out\n" {
		t.Errorf("stdout is %q, %v", out, err)
	}
}

func TestOneArgumentIsALineForTheShellUnlessItIsAPath(t *testing.T) {
	for _, path := range []string{"/bin/true", "./run.sh", "bin/tool-1_2+é:x@y,z", "../up"} {
		if got := commandOf([]string{"--", path}); got.Argv == nil {
			t.Errorf("%q is taken for the line %q", path, got.Line)
		}
	}
	for _, line := range []string{"true", "cd", "echo hi", "~/run", "A=/b", "./run*", "`/bin/true`", "(/bin/true)", "'/bin/true'", `\/bin/true`} {
		if got := commandOf([]string{line}); got.Line != line {
			t.Errorf("%q is taken for the program %q", line, got.Argv)
		}
	}
	if got := commandOf([]string{"echo hi", "there"}); len(got.Argv) != 2 {
		t.Errorf("two arguments are taken for the line %q", got.Line)
	}
}

// R63
func TestPsStartAndOutputAgreeOnTheProcessID(t *testing.T) {
	l := newLab(t)
	l.serve()
	l.ok("create", "box")
	id := strings.TrimSpace(l.ok("exec", "-d", "box", "echo first; exec sleep 600"))
	if !strings.HasPrefix(id, "proc_") {
		t.Errorf("the id is %q", id)
	}
	var listed []wire.Process
	if err := json.Unmarshal([]byte(l.ok("ps", "--json", "box")), &listed); err != nil {
		t.Fatal(err)
	}
	if len(listed) != 1 || listed[0].ID != id || !listed[0].Running {
		t.Errorf("ps shows %+v", listed)
	}
	if got := l.ok("ps", "box"); !strings.Contains(got, id) || !strings.Contains(got, "running") {
		t.Errorf("ps prints %s", got)
	}
	// R61
	for _, want := range []string{"killed: true\n", "killed: false\n"} {
		if got := l.ok("kill", "box", id); got != want {
			t.Errorf("kill says %q, want %q", got, want)
		}
	}
	if got := l.ok("logs", "box", id); got != "first\n" {
		t.Errorf("logs prints %q", got)
	}
	if _, code := l.run("logs", "-f", "box", id); code != 128+9 {
		t.Errorf("logs -f ended with %d, want the command's own", code)
	}
	// R60
	if out, code := l.run("kill", "box", "12345"); code != exitFailed || !strings.Contains(out, wire.CodePIDNotAccepted) {
		t.Errorf("a pid was accepted: %d %s", code, out)
	}
}

func TestCpCopiesFilesInAndOut(t *testing.T) {
	l := newLab(t)
	l.serve()
	l.ok("create", "box")
	from, to := filepath.Join(l.home, "from"), filepath.Join(l.home, "to")
	content := strings.Repeat("bytes \x00\xff\n", 10_000)
	if err := os.WriteFile(from, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	l.ok("cp", from, "box:a/b")
	if got := l.ok("exec", "box", "wc -c < a/b; stat -c %U a"); !strings.HasPrefix(strings.TrimSpace(got), "90000") {
		t.Errorf("inside it has %s bytes", got)
	}
	l.ok("cp", "box:a/b", to)
	if got, err := os.ReadFile(to); err != nil || string(got) != content {
		t.Errorf("what came back differs: %d bytes, %v", len(got), err)
	}
	if out, code := l.run("cp", "box:../../etc/passwd", to); code != exitFailed || !strings.Contains(out, wire.CodeUnsafePath) {
		t.Errorf("a path that climbs out: %d %s", code, out)
	}
}

func TestCpTakesADirectoryForATarget(t *testing.T) {
	l := newLab(t)
	l.serve()
	l.ok("create", "box")
	from, into := filepath.Join(l.home, "from"), filepath.Join(l.home, "into")
	if err := errors.Join(os.WriteFile(from, []byte("content"), 0o600), os.Mkdir(into, 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ to, lies string }{{"box:", "box:from"}, {"box:.", "box:./from"}, {"box:a/b/", "box:a/b/from"}} {
		l.ok("cp", from, c.to)
		l.ok("cp", c.lies, into)
		back := filepath.Join(into, "from")
		if got, err := os.ReadFile(back); err != nil || string(got) != "content" {
			t.Errorf("by way of %s came %q, %v", c.to, got, err)
		}
		_ = os.Remove(back) // the next one is to make it
	}
	if out, code := l.run("cp", "-", "box:"); code != exitUsage || !strings.Contains(out, "stdin has no name") {
		t.Errorf("stdin into a directory: %d %s", code, out)
	}
}

func TestRmStopAndLsSayWhatBecameOfEach(t *testing.T) {
	l := newLab(t)
	l.serve()
	l.ok("create", "a")
	l.ok("create", "b")
	for _, want := range []string{"a stopped\n", "a was not running\n"} {
		if got := l.ok("stop", "a"); got != want {
			t.Errorf("stop says %q, want %q", got, want)
		}
	}
	if got := l.ok("ls", "-a", "--json"); !strings.Contains(got, `"state":"stopped"`) || !strings.Contains(got, `"state":"running"`) {
		t.Errorf("ls shows %s", got)
	}
	l.ok("exec", "-d", "b", "--", "sleep", "600")
	if out, code := l.run("rm", "--if-idle", "b"); code != exitFailed || !strings.Contains(out, wire.CodeBusy) { // R31
		t.Errorf("a busy one: %d %s", code, out)
	}
	out, code := l.run("rm", "a", "nope", "b")
	if code != exitFailed || !strings.Contains(out, "a destroyed\n") || !strings.Contains(out, "b destroyed\n") || !strings.Contains(out, "nope: ") {
		t.Errorf("rm ended with %d: %s", code, out)
	}
	if got := l.ok("ls", "-a"); strings.Count(got, "\n") != 1 {
		t.Errorf("left over: %s", got)
	}
}

func TestWhatCouldNotBeToldHasAnExitCodeOfItsOwn(t *testing.T) {
	for _, code := range []string{wire.CodeUnknown, wire.CodeDestroyFailed, wire.CodeStopFailed, wire.CodeRunnerLost} {
		if got := exitCode(&client.Error{Code: code}, os.Stderr); got != exitUnknown {
			t.Errorf("%s gives %d, want %d", code, got, exitUnknown)
		}
	}
	if got := exitCode(client.ErrTruncated, os.Stderr); got != exitUnknown {
		t.Errorf("a cut stream gives %d, want %d", got, exitUnknown)
	}
	if got := exitCode(&client.Error{Code: wire.CodeNotFound}, os.Stderr); got != exitFailed {
		t.Errorf("not found gives %d, want %d", got, exitFailed)
	}
}

func TestARequestWithoutAnAnswerIsUnknownAndOneThatWasNeverSentHasFailed(t *testing.T) {
	mute := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer mute.Close()
	absent := httptest.NewServer(nil)
	absent.Close()
	for _, c := range []struct {
		base string
		ask  func(*client.Client) error
		want int
	}{
		{mute.URL, func(c *client.Client) error { _, err := c.Delete(t.Context(), "a", false); return err }, exitUnknown},
		{mute.URL, func(c *client.Client) error { _, err := c.Create(t.Context(), client.CreateRequest{}); return err }, exitUnknown},
		{mute.URL, func(c *client.Client) error { _, err := c.Get(t.Context(), "a"); return err }, exitFailed},
		{absent.URL, func(c *client.Client) error { _, err := c.Delete(t.Context(), "a", false); return err }, exitFailed},
		{"http://bad host", func(c *client.Client) error { _, err := c.Delete(t.Context(), "a", false); return err }, exitFailed},
	} {
		err := c.ask(&client.Client{Base: c.base})
		if got := exitCode(err, os.Stderr); err == nil || got != c.want {
			t.Errorf("exit code %d of %v, want %d", got, err, c.want)
		}
	}
}
