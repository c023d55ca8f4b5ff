package spawn_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/keepwell-go/keepwell/backend/runner/spawn"
)

func TestAnOpenSandboxWritesWhereItMayAndBindsPorts(t *testing.T) {
	asEachUser(t, func(t *testing.T, s *spawn.Spawner) {
		outside := t.TempDir()
		open(t, outside)
		if err := os.Chmod(outside, 0o777); err != nil {
			t.Fatal(err)
		}
		for _, isOpen := range []bool{false, true} {
			c := confine(t, s, spawn.Limits{Open: isOpen, ReadOnly: []string{outside}})
			_, code := c.output("echo x >$1/f", outside)
			if wrote := code == 0; wrote != (isOpen || s.Abilities().LandlockABI == 0) {
				t.Errorf("open %t: a file outside of the home was written: %t", isOpen, wrote)
			}
			out, _ := c.output(c.self("listen"))
			if bound := strings.Contains(out, "listen: <nil>"); bound != (isOpen || !s.Abilities().NoTCPBind) {
				t.Errorf("open %t: %s", isOpen, out)
			}
		}
	})
}

func TestAnOpenSandboxGainsNothingElse(t *testing.T) {
	asEachUser(t, func(t *testing.T, s *spawn.Spawner) {
		c := confine(t, s, spawn.Limits{Open: true})
		if out, code := c.output("kill -0 $1", strconv.Itoa(os.Getpid())); code == 0 || !strings.Contains(out, "not permitted") {
			t.Errorf("the runner can be signalled: exit %d: %s", code, out)
		}
		if out, _ := c.output("cat /proc/self/status"); !strings.Contains(out, "NoNewPrivs:\t1") || !strings.Contains(out, "CapEff:\t0000000000000000") {
			t.Errorf("privileges can be gained:\n%s", out)
		}
	})
}

func TestNothingOfAnOpenSandboxOutlivesAKillOfAll(t *testing.T) {
	asEachUser(t, func(t *testing.T, s *spawn.Spawner) {
		c := confine(t, s, spawn.Limits{Open: true})
		_, r := c.sh("daemon", "setsid env -i /bin/sh -c 'echo; exec sleep 1000' & wait")
		if _, err := r.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if err := c.KillAll(within(t)); err != nil {
			t.Fatal(err)
		}
		if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("a descendant still writes: %d bytes, %v", n, err)
		}
	})
}

func TestAnOpenSandboxSaysThatFilesAndPortsAreNotConfined(t *testing.T) {
	s := newSpawner(t, spawn.Config{})
	c := confine(t, s, spawn.Limits{Open: true})
	said := c.Abilities().Sentences()
	for _, want := range []string{"files are not confined beyond their permissions", "TCP ports can be bound"} {
		if !slices.Contains(said, want) {
			t.Errorf("%q does not say %q", said, want)
		}
	}
	if a := confine(t, s, spawn.Limits{}).Abilities(); a.LandlockABI != s.Abilities().LandlockABI || a.NoTCPBind != s.Abilities().NoTCPBind {
		t.Errorf("a closed one is said to be %+v", a)
	}
}

func TestAnOpenSandboxNeedsNoFurtherPaths(t *testing.T) {
	s := newSpawner(t, spawn.Config{})
	l := sandbox(t, spawn.Limits{Open: true, ReadOnly: []string{filepath.Join(t.TempDir(), "none")}})
	c, err := s.Confine(l)
	if err != nil {
		t.Fatalf("%v; want none, since the path means nothing", err)
	}
	c.Close()
	l.Home += "/none"
	if _, err := s.Confine(l); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v; want that the home is missing", err)
	}
}
