package spawn_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/backend/runner/spawn"
)

// R96: a group stands for one tree as long as any process has it, also when all groups have been given out since.
func TestAMarkStandsForOneTreeAtATime(t *testing.T) {
	used := map[uint32]bool{}
	m := spawn.NewMarks(func() (map[uint32]bool, error) { return used, nil })
	running, orphaned, gone := m.Take(), m.Take(), m.Take()
	m.Release(orphaned)
	m.Release(gone)
	used = map[uint32]bool{orphaned.GID(): true}
	seen := map[uint32]bool{}
	for range spawn.MarkCount {
		k := m.Take()
		m.Release(k)
		seen[k.GID()] = true
	}
	if seen[running.GID()] || seen[orphaned.GID()] || !seen[gone.GID()] {
		t.Error("a group was given out twice, or never again")
	}
	if !m.Valid(running) || !m.Valid(orphaned) || m.Valid(gone) {
		t.Errorf("valid: running %v, orphaned %v, gone %v; want true, true, false", m.Valid(running), m.Valid(orphaned), m.Valid(gone))
	}
}

func TestNoMarkIsGivenOutWhenItCannotBeToldWhichAreTaken(t *testing.T) {
	m := spawn.NewMarks(func() (map[uint32]bool, error) { return nil, errors.New("no /proc") })
	for range spawn.MarkCount {
		if m.Take().GID() == 0 {
			t.Fatal("none was given out in the first lap")
		}
	}
	if k := m.Take(); k.GID() != 0 || m.Valid(k) {
		t.Errorf("gave out %d", k.GID())
	}
}

func TestStatusOfAProcessIsRead(t *testing.T) {
	const status = "Name:\tx Uid:\\n7\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t12\nPPid:\t3\nUid:\t1000\t1001\t1002\t1003\nGroups:\t5 1802960896 \n" +
		"NSpid:\t12\t1\nNSpgid:\t11\t0\nNSsid:\t10\t0\nThreads:\t1\n"
	ppid, pgid, sid, uid, groups, ended := spawn.ParseStatus([]byte(status))
	if ppid != 3 || pgid != 11 || sid != 10 || uid != 1000 || !slices.Equal(groups, []uint32{5, 1802960896}) || ended {
		t.Error(ppid, pgid, sid, uid, groups, ended)
	}
	for text, want := range map[string]bool{
		"State:\tZ (zombie)\nThreads:\t1\n": true,
		"State:\tZ (zombie)\nThreads:\t2\n": false, // its first thread is gone, the process is not
		"State:\tX (dead)\nThreads:\t0\n":   true,
		"State:\tT (stopped)\nThreads:\t1":  false,
	} {
		if _, _, _, _, _, ended := spawn.ParseStatus([]byte(text)); ended != want {
			t.Errorf("%q: ended %v, want %v", text, ended, want)
		}
	}
	if got := spawn.ParseBorn([]byte("12 (a) b (c)) S 3 11 10 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 4711 9")); got != 4711 {
		t.Errorf("born %d, want 4711", got)
	}
}

func FuzzWhatProcSays(f *testing.F) {
	f.Add([]byte("State:\tZ\nUid:\t1 2\nGroups:\t1 2 3\n"))
	f.Add([]byte("1 (x) S"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		spawn.ParseStatus(data)
		spawn.ParseBorn(data)
	})
}

// R60, R97: what was looked at is what is signalled, or nobody.
func TestAProcessThatIsNotTheOneLookedAtIsNotSignalled(t *testing.T) {
	c := confine(t, newSpawner(t, spawn.Config{}), spawn.Limits{})
	for _, byNumber := range []bool{false, true} {
		p, _ := c.sh("heir", "exec sleep 1000")
		born := spawn.BornOf(p.PID())
		if err := spawn.SendToBorn(p.PID(), born-1, byNumber); err != nil {
			t.Error(err)
		}
		lives(t, p)
		if err := spawn.SendToBorn(p.PID(), born, byNumber); err != nil {
			t.Error(err)
		}
		await(t, p)
	}
}

func TestAnIdleSandboxGivesUpItsThread(t *testing.T) {
	mock := clock.NewMock()
	c := confine(t, newSpawner(t, spawn.Config{Clock: mock}), spawn.Limits{})
	if c.HasThread() {
		t.Error("it has a thread before its first command")
	}
	p, out := c.sh("daemon", daemon)
	readLine(t, out, "up")
	await(t, p)
	mock.Add(spawn.IdleAfter)
	if !c.HasThread() {
		t.Error("it lost its thread while a daemon is alive")
	}
	if err := c.KillAll(within(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		mock.Add(time.Hour)
		if c.HasThread() {
			return errors.New("it keeps its thread")
		}
		return nil
	})
	if out, code := c.output("echo again"); out != "again" || code != 0 {
		t.Errorf("%q, %d", out, code)
	}
}
