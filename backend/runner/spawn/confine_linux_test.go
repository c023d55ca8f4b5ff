package spawn_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/keepwell-go/keepwell/backend/runner/spawn"
)

// R103
func TestNothingOfTheServerIsVisibleFromInside(t *testing.T) {
	asEachUser(t, func(t *testing.T, s *spawn.Spawner) {
		state := t.TempDir()
		if err := os.WriteFile(filepath.Join(state, "canary"), []byte("CANARY"), 0o644); err != nil {
			t.Fatal(err)
		}
		open(t, state)
		other := confine(t, s, spawn.Limits{})
		other.output("echo CANARY >canary; chmod 777 . canary")
		c := confine(t, s, spawn.Limits{})
		for name, script := range map[string]string{
			"the state directory":         "cat $1/canary; ls $1",
			"another home":                "cat $2/canary; ls $2",
			"the environment it got":      "env",
			"the server's environment":    "tr '\\0' '\\n' </proc/$3/environ",
			"the server's memory":         "dd if=/proc/$3/mem bs=1 count=1 && echo CANARY",
			"the server's descriptors":    "ls /proc/$3/fd && echo CANARY",
			"the root through its cwd":    "cat /proc/$3/cwd/etc/passwd && echo CANARY",
			"the root through its own":    "cat /proc/self/root$1/canary",
			"a new file beside its home":  "echo x >../new && echo CANARY",
			"a new file in /tmp":          "echo x >/tmp/spawn-canary && echo CANARY",
			"a new file in /usr":          "echo x >/usr/spawn-canary && echo CANARY",
			"a link out of its home":      "ln -s $1 out; cat out/canary",
			"a setting of its own kernel": "echo 1 >/proc/self/oom_score_adj && echo CANARY",
		} {
			t.Run(name, func(t *testing.T) {
				if out, _ := c.output(script, state, other.home, strconv.Itoa(os.Getpid())); strings.Contains(out, "CANARY") {
					t.Errorf("visible or possible:\n%s", out)
				}
			})
		}
	})
}

// open lets other uids into a directory of the test, so that permissions are not what keeps them out.
func open(t *testing.T, dir string) {
	t.Helper()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheRunnerCannotBeSignalledFromInside(t *testing.T) {
	asEachUser(t, func(t *testing.T, s *spawn.Spawner) {
		c, d := confine(t, s, spawn.Limits{}), confine(t, s, spawn.Limits{})
		stranger, _ := d.sh("stranger", "exec sleep 1000")
		for _, pid := range []int{os.Getpid(), stranger.PID()} {
			if out, code := c.output("kill -0 $1", strconv.Itoa(pid)); code == 0 || !strings.Contains(out, "not permitted") {
				t.Errorf("kill -0 %d: exit %d: %s; want not permitted", pid, code, out)
			}
		}
	})
}

func TestNoTCPPortCanBeChosen(t *testing.T) {
	asEachUser(t, func(t *testing.T, s *spawn.Spawner) {
		if !s.Abilities().NoTCPBind {
			t.Skip("needs Landlock ABI 4 and seccomp")
		}
		c := confine(t, s, spawn.Limits{})
		if out, _ := c.output(c.self("listen")); !strings.Contains(out, "listen: ") || !strings.Contains(out, "permission denied") {
			t.Errorf("%s; want permission denied", out)
		}
	})
}

func TestTheHomeAndTheDevicesAreUsable(t *testing.T) {
	asEachUser(t, func(t *testing.T, s *spawn.Spawner) {
		c := confine(t, s, spawn.Limits{})
		for _, script := range []string{
			"echo x >/dev/null", "head -c 1 /dev/zero", "head -c 1 /dev/urandom", "head -c 1 /dev/random", "! echo x 2>/dev/null >/dev/full",
			"echo x >/dev/stdout", "cat </dev/null", "cat /etc/passwd", "ls /proc/self/fd", "ls /usr/bin",
			"mkdir tmp && echo x >tmp/f && mv tmp/f g && ln g h && mkfifo p && rm g && rm -r tmp",
			"printf '#!/bin/sh\necho ok' >run && chmod +x run && ./run", ": >cut && echo 1234 >cut && : >cut && ! [ -s cut ]",
		} {
			if out, code := c.output(script); code != 0 {
				t.Errorf("%s: exit %d: %s", script, code, out)
			}
		}
	})
}

func TestASetuidProgramChangesNothing(t *testing.T) {
	asEachUser(t, func(t *testing.T, s *spawn.Spawner) {
		needRoot(t)
		c := confine(t, s, spawn.Limits{})
		id, err := os.ReadFile("/usr/bin/id")
		path := filepath.Join(c.home, "id")
		if err == nil {
			err = errors.Join(os.WriteFile(path, id, 0o755), os.Chmod(path, 0o755|fs.ModeSetuid))
		}
		if err != nil {
			t.Fatal(err)
		}
		if out, code := c.output("./id -u"); code != 0 || out != strconv.Itoa(int(c.uid)) {
			t.Errorf("id -u: exit %d: %s; want %d", code, out, c.uid)
		}
	})
}

func TestASandboxHasNoCapabilitiesEvenWithoutAUIDOfItsOwn(t *testing.T) {
	s := newSpawner(t, spawn.Config{})
	l := sandbox(t, spawn.Limits{})
	shared := l
	shared.UID, shared.GID = 0, 0
	for _, limits := range []spawn.Limits{l, shared} {
		c := confineAs(t, s, limits)
		if out, _ := c.output("grep -E 'Cap(Prm|Eff|Inh)|NoNewPrivs' /proc/self/status"); strings.Count(out, "0000000000000000") != 3 || !strings.Contains(out, "NoNewPrivs:\t1") {
			t.Errorf("uid %d: %s", limits.UID, out)
		}
	}
}

func TestFurtherReadOnlyPathsAreReadOnly(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("hello"), 0o666); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	c := confine(t, newSpawner(t, spawn.Config{}), spawn.Limits{ReadOnly: []string{dir}})
	if out, _ := c.output("cat $1/f; echo x >$1/f && echo WROTE", dir); !strings.HasPrefix(out, "hello") || strings.Contains(out, "WROTE") {
		t.Error(out)
	}
}

func TestConfineRefusesWhatItCannotConfine(t *testing.T) {
	s := newSpawner(t, spawn.Config{})
	good := sandbox(t, spawn.Limits{})
	file := filepath.Join(good.Home, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*spawn.Limits)
		want   error
	}{
		"no home":            {func(l *spawn.Limits) { l.Home = "" }, fs.ErrNotExist},
		"a missing home":     {func(l *spawn.Limits) { l.Home += "/none" }, fs.ErrNotExist},
		"a file as home":     {func(l *spawn.Limits) { l.Home = file }, fs.ErrNotExist},
		"a missing path":     {func(l *spawn.Limits) { l.ReadOnly = []string{"/none"} }, fs.ErrNotExist},
		"an unmappable uid ": {func(l *spawn.Limits) { l.UID = 4294967295 }, fs.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			l := good
			c.change(&l)
			if _, err := s.Confine(l); !errors.Is(err, c.want) || !strings.HasPrefix(err.Error(), "spawn: confine ") {
				t.Errorf("%v; want %v", err, c.want)
			}
		})
	}
}

func TestAnOrdinaryUserCannotGiveAUID(t *testing.T) {
	t.Run("ordinary_user", func(t *testing.T) {
		ownProcess(t, ordinaryUID, func(t *testing.T, s *spawn.Spawner) {
			_, err := s.Confine(spawn.Limits{Name: "x", Home: t.TempDir(), UID: 1})
			if !errors.Is(err, fs.ErrPermission) {
				t.Errorf("%v; want permission denied", err)
			}
			said := strings.Join(s.Abilities().Sentences(), "\n")
			for _, want := range []string{"processes and memory not limited per sandbox", "sandboxes share the uid of this process", "may outlive"} {
				if !strings.Contains(said, want) {
					t.Errorf("%q is not said:\n%s", want, said)
				}
			}
			if a := s.Abilities(); a.Confined() || a.UIDs || a.Marks || !a.Subreaper {
				t.Errorf("%+v", a)
			}
		})
	})
}
