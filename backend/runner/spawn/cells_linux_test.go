package spawn_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/backend/runner/spawn"
)

// threads says which of the sandboxes have a thread, in their order.
func threads(cells []cell) string {
	var b strings.Builder
	for _, c := range cells {
		b.WriteByte("-T"[map[bool]int{true: 1}[c.HasThread()]])
	}
	return b.String()
}

// stillSpawner has a clock that stands still, so that no thread ends for being idle.
func stillSpawner(t *testing.T) *spawn.Spawner {
	return newSpawner(t, spawn.Config{Clock: clock.NewMock()})
}

func severalCells(t *testing.T, s *spawn.Spawner, n int) []cell {
	var all []cell
	for range n {
		all = append(all, confine(t, s, spawn.Limits{}))
	}
	return all
}

func TestTheThreadThatIsIdleForLongestGivesWay(t *testing.T) {
	s := stillSpawner(t)
	s.LimitThreads(2, 100)
	all := severalCells(t, s, 4)
	for i, step := range []struct {
		use  int
		want string
	}{{0, "T---"}, {1, "TT--"}, {0, "TT--"}, {2, "T-T-"}, {3, "--TT"}, {1, "-T-T"}} {
		if _, code := all[step.use].output("true"); code != 0 {
			t.Fatalf("step %d: exit %d", i, code)
		}
		if got := threads(all); got != step.want {
			t.Fatalf("step %d: threads %s, want %s", i, got, step.want)
		}
	}
}

func TestASandboxInUseKeepsItsThread(t *testing.T) {
	s := stillSpawner(t)
	s.LimitThreads(1, 100)
	all := severalCells(t, s, 3)
	all[0].sh("main", "exec sleep 1000")
	_, r := all[1].sh("left behind", "sleep 1000 & echo")
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	all[2].output("true")
	if got := threads(all); got != "TTT" {
		t.Errorf("threads %s, want all: a process runs, and one was left behind", got)
	}
}

func TestBeyondTheLimitOfThreadsStartsFail(t *testing.T) {
	s := stillSpawner(t)
	s.LimitThreads(2, 2)
	all := severalCells(t, s, 3)
	for _, c := range all[:2] {
		c.sh("main", "exec sleep 1000")
	}
	null := devNull(t)
	cmd := spawn.Command{ID: "more", Argv: []string{"/bin/true"}, Stdin: null, Stdout: null, Stderr: null}
	_, err := all[2].Start(cmd)
	if !errors.Is(err, spawn.ErrThreads) || !strings.Contains(err.Error(), "2 have one, which is the limit") {
		t.Fatalf("%v; want %v", err, spawn.ErrThreads)
	}
	if out, code := all[0].output("echo hi"); code != 0 || out != "hi" {
		t.Errorf("a sandbox that has a thread: exit %d: %s", code, out)
	}
	if err := all[1].KillAll(within(t)); err != nil {
		t.Fatal(err)
	}
	p, err := all[2].Start(cmd)
	if err != nil {
		t.Fatalf("%v; want the thread of the one that is idle now", err)
	}
	await(t, p)
}
