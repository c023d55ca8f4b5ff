package spawn_test

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend/runner/spawn"
)

// A child is of the sandbox's uid and in its domain for a moment before it executes its command. What stops every process that it may
// signal, again and again, catches some of them there, and the start with them. Here nothing but the kill itself can end such a start.
func TestKillAllEndsAStartThatASandboxHoldsUp(t *testing.T) {
	asEachUser(t, func(t *testing.T, s *spawn.Spawner) {
		if a := s.Abilities(); !a.UIDs && !a.SignalScope {
			t.Skip("what stops all it may signal would stop this test")
		}
		neverCollect(t)
		s.Wait(time.Hour)
		c := confine(t, s, spawn.Limits{})
		c.sh("attacker", "while :; do kill -STOP -1; done 2>/dev/null")
		starts := startUntilClosed(c)
		eventually(t, func() error {
			if spawn.Stuck() == 0 {
				return errors.New("no start hangs")
			}
			return nil
		})
		c.Refuse()
		if err := c.KillAll(within(t)); err != nil {
			t.Fatal(err)
		}
		starts.Wait()
		if n := spawn.Stuck(); n != 0 {
			t.Errorf("%d starts hang on", n)
		}
	})
}

// neverCollect keeps the garbage collector away, which a start that hangs would make this whole process wait for, and has a processor
// for more than such a start.
func neverCollect(t *testing.T) {
	percent, processors := debug.SetGCPercent(-1), runtime.GOMAXPROCS(4)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		runtime.GOMAXPROCS(processors)
	})
}

// startUntilClosed starts commands, several at once, until the sandbox takes no more.
func startUntilClosed(c cell) *sync.WaitGroup {
	null := devNull(c.tb)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for {
				_, err := c.Start(spawn.Command{ID: fmt.Sprint(i), Argv: []string{"/bin/true"}, Dir: c.home, Stdin: null, Stdout: null, Stderr: null})
				if errors.Is(err, spawn.ErrClosed) {
					return
				}
				if err != nil {
					c.tb.Error(err)
					return
				}
			}
		})
	}
	return &wg
}

func TestASandboxThatRefusesStartsNothingAndIsKilledAllTheSame(t *testing.T) {
	c := confine(t, newSpawner(t, spawn.Config{}), spawn.Limits{Name: "box"})
	p, _ := c.sh("before", "exec sleep 1000")
	c.Refuse()
	null := devNull(t)
	_, err := c.Start(spawn.Command{ID: "after", Argv: []string{"/bin/true"}, Stdin: null, Stdout: null, Stderr: null})
	if !errors.Is(err, spawn.ErrClosed) {
		t.Errorf("a start after it: %v; want that it is closed", err)
	}
	lives(t, p)
	if err := c.KillAll(within(t)); err != nil {
		t.Fatal(err)
	}
	await(t, p)
}
