package spawn_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/keepwell-go/keepwell/backend/runner/spawn"
)

// R99: what cannot start says why, and leaves no process behind.
func TestWhatCannotStartSaysWhy(t *testing.T) {
	asEachUser(t, func(t *testing.T, s *spawn.Spawner) {
		c := confine(t, s, spawn.Limits{})
		c.output("echo '#!/bin/sh' >plain; echo '#!/none' >orphan; chmod +x orphan; mkdir dir; printf text >text; chmod +x text")
		for name, f := range map[string]struct {
			argv []string
			dir  string
			want error
			text string
		}{
			"a command that is nowhere":      {[]string{"no-such"}, "", fs.ErrNotExist, "spawn: start x: no-such: no such file or directory"},
			"a path that is not there":       {[]string{"/bin/no-such"}, "", fs.ErrNotExist, "spawn: start x: /bin/no-such: no such file or directory"},
			"a file that is not executable":  {[]string{"./plain"}, "", fs.ErrPermission, "spawn: start x: ./plain: permission denied"},
			"one that is found in the PATH":  {[]string{"plain"}, "", fs.ErrPermission, "spawn: start x: plain: permission denied"},
			"a directory":                    {[]string{"./dir"}, "", fs.ErrPermission, "spawn: start x: ./dir: permission denied"},
			"what Landlock keeps from it":    {[]string{"/proc/self/root/tmp"}, "", fs.ErrPermission, "permission denied"},
			"a script without interpreter":   {[]string{"./orphan"}, "", fs.ErrNotExist, "spawn: start x: ./orphan: no such file or directory"},
			"a working directory not there":  {[]string{"/bin/true"}, "/none", fs.ErrNotExist, `spawn: start x: directory "/none": no such file or directory`},
			"a working directory that isn't": {[]string{"/bin/true"}, "/etc/passwd", fs.ErrNotExist, `spawn: start x: directory "/etc/passwd": `},
			"nothing":                        {nil, "", fs.ErrInvalid, "spawn: start x: no command: invalid argument"},
			"an empty name":                  {[]string{""}, "", fs.ErrInvalid, "spawn: start x: no command: invalid argument"},
			"a NUL byte":                     {[]string{"a\x00b"}, "", syscall.EINVAL, "invalid argument"},
		} {
			t.Run(name, func(t *testing.T) {
				if f.dir == "" {
					f.dir = c.home
				}
				null := devNull(t)
				_, err := c.Start(spawn.Command{ID: "x", Argv: f.argv, Env: []string{"PATH=/usr/bin:" + c.home}, Dir: f.dir, Stdin: null, Stdout: null, Stderr: null})
				if !errors.Is(err, f.want) || !strings.Contains(err.Error(), f.text) {
					t.Errorf("%v; want %v: %q", err, f.want, f.text)
				}
			})
		}
	})
}

// The server sees more than the sandbox does, and must not tell.
func TestWhatASandboxMayNotSeeIsNotToldToBeThere(t *testing.T) {
	needRoot(t)
	closed := t.TempDir() // only root may pass it
	if err := errors.Join(os.Chmod(closed, 0o700), os.WriteFile(closed+"/there", nil, 0o644), os.WriteFile(closed+"/program", nil, 0o755), os.Mkdir(closed+"/folder", 0o755)); err != nil {
		t.Fatal(err)
	}
	c := confine(t, newSpawner(t, spawn.Config{}), spawn.Limits{})
	null := devNull(t)
	for _, name := range []string{"there", "program", "folder", "not-there"} {
		for what, cmd := range map[string]spawn.Command{
			"a command in the PATH": {Argv: []string{name}, Env: []string{"PATH=" + closed + ":/usr/bin"}},
			"a path":                {Argv: []string{closed + "/" + name}},
			"a directory":           {Argv: []string{"/bin/true"}, Dir: closed + "/" + name},
		} {
			cmd.ID, cmd.Stdin, cmd.Stdout, cmd.Stderr = "x", null, null, null
			_, err := c.Start(cmd)
			if want := fmt.Sprintf("spawn: start x: %s: permission denied", cmd.Argv[0]); err == nil || err.Error() != want {
				t.Errorf("%s, %s: %v; want %q as for all others", what, name, err, want)
			}
		}
	}
}

func TestTheCommandIsLookedUpInItsOwnPath(t *testing.T) {
	c := confine(t, newSpawner(t, spawn.Config{}), spawn.Limits{})
	c.output(`mkdir a b; printf '#!/bin/sh\necho a' >a/tool; printf '#!/bin/sh\necho b' >b/tool; chmod +x b/tool; cp b/tool tool`)
	for path, want := range map[string]string{
		"a:b":            "b", // the first that may be executed
		c.home + "/b:/x": "b",
		"":               "", // an empty PATH has no directory
		":a":             "b",
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		p, err := c.Start(spawn.Command{ID: "x", Argv: []string{"tool"}, Env: []string{"PATH=/none", "PATH=" + path}, Dir: c.home, Stdin: devNull(t), Stdout: w, Stderr: w})
		w.Close()
		if want == "" {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("PATH=%q: %v; want not found", path, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("PATH=%q: %v", path, err)
			continue
		}
		await(t, p)
		var out string
		if _, err := fmt.Fscan(r, &out); err != nil || out != want {
			t.Errorf("PATH=%q: %q, %v; want %q", path, out, err, want)
		}
	}
}

func TestTheEnvironmentIsTheCommandsOwn(t *testing.T) {
	needRoot(t)
	c := confine(t, newSpawner(t, spawn.Config{}), spawn.Limits{})
	if out, _ := c.output("exec env"); out != "HOME="+c.home+"\nPATH=/usr/bin:/bin\nPWD="+c.home && strings.Count(out, "=") != 3 {
		t.Errorf("environment:\n%s", out)
	}
}

func TestTheLimitsHold(t *testing.T) {
	asEachUser(t, func(t *testing.T, s *spawn.Spawner) {
		c := confine(t, s, spawn.Limits{MemoryMB: 300, PIDs: 40, OpenFiles: 77})
		out, _ := c.output("cat /proc/self/limits")
		want := map[string]string{"Max address space": "314572800 314572800", "Max open files": "77 77", "Max core file size": "0 0"}
		if isRoot() {
			want["Max processes"] = "40 40"
		}
		for line := range strings.Lines(out) {
			for name, values := range want {
				if rest, ok := strings.CutPrefix(line, name); ok {
					if !strings.HasPrefix(strings.Join(strings.Fields(rest), " "), values) {
						t.Errorf("%s; want %s", line, values)
					}
					delete(want, name)
				}
			}
		}
		if len(want) > 0 {
			t.Errorf("not found: %v in\n%s", want, out)
		}
	})
}

func TestLimitsThatTheRunnerItselfHasNotGotAreLowered(t *testing.T) {
	c := confine(t, newSpawner(t, spawn.Config{}), spawn.Limits{OpenFiles: 1 << 40})
	if out, code := c.output("ulimit -n"); code != 0 || out == "" || out == fmt.Sprint(1<<40) {
		t.Errorf("ulimit -n: exit %d: %s", code, out)
	}
}

func TestProcessesBeyondTheLimitCannotBeForked(t *testing.T) {
	asEachUser(t, func(t *testing.T, s *spawn.Spawner) {
		needRoot(t)
		c := confine(t, s, spawn.Limits{PIDs: 5})
		if out, _ := c.output("for i in 1 2 3 4 5 6 7 8; do sleep 1000 >/dev/null 2>&1 & done"); !strings.Contains(out, "fork") {
			t.Errorf("%q; want that fork fails", out)
		}
	})
}

func TestAStreamThatIsNotSetIsAMistake(t *testing.T) {
	c := confine(t, newSpawner(t, spawn.Config{}), spawn.Limits{})
	defer func() {
		if got := fmt.Sprint(recover()); !strings.HasPrefix(got, "spawn: ") {
			t.Errorf("panic %q", got)
		}
	}()
	_, err := c.Start(spawn.Command{Argv: []string{"/bin/true"}})
	t.Errorf("no panic but %v", err)
}

func TestAClosedConfinementStartsNothing(t *testing.T) {
	c := confine(t, newSpawner(t, spawn.Config{}), spawn.Limits{})
	c.Close()
	c.Close()
	null := devNull(t)
	if _, err := c.Start(spawn.Command{ID: "x", Argv: []string{"/bin/true"}, Stdin: null, Stdout: null, Stderr: null}); !errors.Is(err, spawn.ErrClosed) {
		t.Errorf("%v; want ErrClosed", err)
	}
}
