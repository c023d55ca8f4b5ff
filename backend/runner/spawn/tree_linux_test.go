package spawn_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/backend/runner/spawn"
)

// daemon leaves the group, the session, its parent and its environment behind, keeping nothing but its standard output.
const daemon = `(setsid env -i /bin/sh -c 'echo up; exec sleep 1000' &) ; `

// R96: an end of the output means that no process holds it any more.
func TestKillReachesWhatLeftSessionParentAndEnvironment(t *testing.T) {
	asEachUser(t, func(t *testing.T, s *spawn.Spawner) {
		c := confine(t, s, spawn.Limits{})
		p, out := c.sh("daemon", daemon+"sleep 1000")
		lines := readLine(t, out, "up")
		killed, err := p.Kill(within(t), 0)
		if !killed || err != nil {
			t.Fatalf("Kill = %v, %v; want true", killed, err)
		}
		atEnd(t, lines)
	})
}

// R96: also when the process itself has gone long before, which is not a kill of it.
func TestKillOfAnEndedProcessReachesItsDaemon(t *testing.T) {
	asEachUser(t, func(t *testing.T, s *spawn.Spawner) {
		c := confine(t, s, spawn.Limits{})
		p, out := c.sh("daemon", daemon)
		lines := readLine(t, out, "up")
		await(t, p)
		killed, err := p.Kill(within(t), time.Minute)
		if killed || err != nil {
			t.Fatalf("Kill = %v, %v; want false", killed, err)
		}
		atEnd(t, lines)
	})
}

// R96
func TestKillAllReachesWhatLeftSessionParentAndEnvironment(t *testing.T) {
	asEachUser(t, func(t *testing.T, s *spawn.Spawner) {
		c := confine(t, s, spawn.Limits{})
		_, first := c.sh("one", daemon+"sleep 1000")
		_, second := c.sh("two", daemon)
		firstLines, secondLines := readLine(t, first, "up"), readLine(t, second, "up")
		if err := c.KillAll(within(t)); err != nil {
			t.Fatal(err)
		}
		atEnd(t, firstLines)
		atEnd(t, secondLines)
	})
}

func TestKillSparesTheOtherProcessesOfTheSandboxAndOtherSandboxes(t *testing.T) {
	asEachUser(t, func(t *testing.T, s *spawn.Spawner) {
		c, d := confine(t, s, spawn.Limits{}), confine(t, s, spawn.Limits{})
		p, out := c.sh("killed", daemon+"sleep 1000")
		readLine(t, out, "up")
		sibling, _ := c.sh("sibling", "exec sleep 1000")
		stranger, _ := d.sh("stranger", "exec sleep 1000")
		if _, err := p.Kill(within(t), 0); err != nil {
			t.Fatal(err)
		}
		lives(t, sibling)
		if err := c.KillAll(within(t)); err != nil {
			t.Fatal(err)
		}
		await(t, sibling)
		lives(t, stranger)
	})
}

func TestOneSandboxMaySignalItsOwnProcessesFromAnotherCommand(t *testing.T) {
	asEachUser(t, func(t *testing.T, s *spawn.Spawner) {
		c := confine(t, s, spawn.Limits{})
		p, _ := c.sh("server", "exec sleep 1000")
		if out, code := c.output("kill -TERM $1", strconv.Itoa(p.PID())); code != 0 {
			t.Fatalf("kill: %d: %s", code, out)
		}
		await(t, p)
		if got := p.Status().Signal(); got != syscall.SIGTERM {
			t.Errorf("ended by %v, want SIGTERM", got)
		}
	})
}

// R96: what forks faster than it can be killed one by one is stopped as a whole first.
func TestForkBombLosesAndItsSiblingDoesNotNotice(t *testing.T) {
	asEachUser(t, func(t *testing.T, s *spawn.Spawner) {
		c := confine(t, s, spawn.Limits{PIDs: 60})
		sibling, _ := c.sh("sibling", "exec sleep 1000")
		bomb, out := c.sh("bomb", `echo up; b() { n=$1; while [ $n -gt 0 ]; do n=$((n-1)); setsid /bin/sh -c "$2" sh 3 "$2" 2>/dev/null & done; wait; }; b 4 'while :; do (setsid sleep 0.05 &); done'`)
		lines := readLine(t, out, "up")
		if _, err := bomb.Kill(within(t), 0); err != nil {
			t.Fatal(err)
		}
		atEnd(t, lines)
		lives(t, sibling)
	})
}

func TestKillAllEndsAForkBomb(t *testing.T) {
	asEachUser(t, func(t *testing.T, s *spawn.Spawner) {
		c := confine(t, s, spawn.Limits{PIDs: 60})
		_, out := c.sh("bomb", `echo up; while :; do (setsid sh -c 'while :; do (setsid sleep 0.05 &); done' 2>/dev/null &); sleep 0.1; done`)
		lines := readLine(t, out, "up")
		if err := c.KillAll(within(t)); err != nil {
			t.Fatal(err)
		}
		atEnd(t, lines)
	})
}

func TestGraceLetsAProcessEndByItself(t *testing.T) {
	c := confine(t, newSpawner(t, spawn.Config{}), spawn.Limits{})
	p, out := c.sh("polite", "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.01; done")
	lines := readLine(t, out, "up")
	killed, err := p.Kill(within(t), deadline)
	if !killed || err != nil {
		t.Fatalf("Kill = %v, %v; want true", killed, err)
	}
	if got := p.Status().ExitStatus(); got != 7 {
		t.Errorf("exit status %d, want its own 7", got)
	}
	if got := readLine(t, lines, "bye"); got == nil {
		t.Error("it was not asked")
	}
}

func TestGraceEndsByTheClockAndThenItIsKilled(t *testing.T) {
	mock := clock.NewMock()
	c := confine(t, newSpawner(t, spawn.Config{Clock: mock}), spawn.Limits{})
	p, out := c.sh("deaf", "trap 'echo heard' TERM; echo up; while :; do sleep 0.01; done")
	lines := readLine(t, out, "up")
	result := make(chan error, 1)
	go func() { // ends with the kill below
		_, err := p.Kill(within(t), time.Hour)
		result <- err
	}()
	readLine(t, lines, "heard")
	lives(t, p)
	for p.Status() == 0 {
		mock.Add(time.Hour)
	}
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	if got := p.Status().Signal(); got != syscall.SIGKILL {
		t.Errorf("ended by %v, want SIGKILL", got)
	}
}

// R61
func TestSecondKillSaysThatItKilledNothing(t *testing.T) {
	c := confine(t, newSpawner(t, spawn.Config{}), spawn.Limits{})
	p, _ := c.sh("sleep", "exec sleep 1000")
	for i, want := range []bool{true, false, false} {
		if killed, err := p.Kill(within(t), 0); killed != want || err != nil {
			t.Errorf("kill %d = %v, %v; want %v", i+1, killed, err, want)
		}
	}
	if signaled, err := p.Signal(syscall.SIGTERM); signaled || err != nil {
		t.Errorf("Signal = %v, %v; want false", signaled, err)
	}
}

func TestKillWithAnEndedContextSaysThatSomeMayLive(t *testing.T) {
	c := confine(t, newSpawner(t, spawn.Config{}), spawn.Limits{})
	p, _ := c.sh("sleep", "exec sleep 1000")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := p.Kill(ctx, time.Hour)
	if err != nil && (!errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "processes may live")) {
		t.Errorf("Kill = %v; want that some may live", err)
	}
	if _, err := p.Kill(within(t), 0); err != nil {
		t.Error(err)
	}
}

// readLine reads until the line and returns the rest.
func readLine(t *testing.T, r io.Reader, want string) io.Reader {
	t.Helper()
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("no line %q: %v", want, err)
		}
		if strings.TrimSpace(line) == want {
			return lines
		}
	}
}

// atEnd fails when some process still holds the output.
func atEnd(t *testing.T, r io.Reader) {
	t.Helper()
	ended := make(chan struct{})
	go func() { // ends with the last writer, at the latest when the test closes the pipe
		defer close(ended)
		_, _ = io.Copy(io.Discard, r)
	}()
	select {
	case <-ended:
	case <-time.After(deadline):
		t.Fatal("some process still lives")
	}
}

func lives(t *testing.T, p *spawn.Process) {
	t.Helper()
	if ok, err := p.Signal(0); !ok || err != nil {
		t.Fatalf("%d does not live: %v, %v", p.PID(), ok, err)
	}
	if _, err := os.Stat("/proc/" + strconv.Itoa(p.PID())); err != nil {
		t.Fatal(err)
	}
}
