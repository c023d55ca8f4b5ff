package spawn_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend/runner/spawn"
)

const many = 200

// R97
func TestEveryFailingChildDeliversItsOwnStatus(t *testing.T) {
	asEachUser(t, func(t *testing.T, s *spawn.Spawner) { trueStatuses(t, confine(t, s, spawn.Limits{})) })
}

// R97: with another waiter in the same process nobody's status is stolen.
func TestChildrenOfOthersAreLeftToThem(t *testing.T) {
	var others sync.WaitGroup
	others.Go(func() {
		for i := range many {
			err := exec.Command("/bin/sh", "-c", "exit "+strconv.Itoa(i)).Run()
			if want := fmt.Sprintf("exit status %d", i); i > 0 && (err == nil || err.Error() != want) {
				t.Errorf("%v; want %s", err, want)
			}
		}
	})
	trueStatuses(t, confine(t, newSpawner(t, spawn.Config{}), spawn.Limits{}))
	others.Wait()
}

func trueStatuses(t *testing.T, c cell) {
	null := devNull(t)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := worker; i < many; i += 4 {
				p, err := c.Start(spawn.Command{ID: strconv.Itoa(i), Argv: []string{"/bin/sh", "-c", "exit " + strconv.Itoa(i)}, Stdin: null, Stdout: null, Stderr: null})
				if err != nil {
					t.Error(err)
					return
				}
				<-p.Done()
				if got := p.Status(); !got.Exited() || got.ExitStatus() != i {
					t.Errorf("status %#x, want exit %d", got, i)
				}
			}
		})
	}
	wg.Wait()
}

// R98
func TestAdoptedOrphansAreReaped(t *testing.T) {
	asEachUser(t, func(t *testing.T, s *spawn.Spawner) {
		c := confine(t, s, spawn.Limits{})
		out, code := c.output(fmt.Sprintf("i=0; while [ $i -lt %d ]; do (: &); i=$((i+1)); done", many))
		if code != 0 {
			t.Fatal(out)
		}
		eventually(t, func() error { return childless() })
	})
}

// childless says which children this process has.
func childless() error {
	dirs, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		return err
	}
	for _, path := range dirs {
		data, _ := os.ReadFile(path)
		if strings.Contains(string(data), fmt.Sprintf("\nPPid:\t%d\n", os.Getpid())) {
			return fmt.Errorf("a child is left: %.60s", data)
		}
	}
	return nil
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(deadline); ; <-tick.C {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// R60, R97: the number of a process that was reaped goes to another, and nothing is signalled.
func TestARecycledNumberIsNeverSignalled(t *testing.T) {
	asEachUser(t, func(t *testing.T, s *spawn.Spawner) {
		needRoot(t)
		c, d := confine(t, s, spawn.Limits{}), confine(t, s, spawn.Limits{})
		old, _ := c.sh("old", "exit 0")
		await(t, old)
		heir := recycle(t, d, old.PID())
		if ok, err := old.Signal(9); ok || err != nil {
			t.Errorf("Signal = %v, %v; want false", ok, err)
		}
		if killed, err := old.Kill(within(t), time.Second); killed || err != nil {
			t.Errorf("Kill = %v, %v; want false", killed, err)
		}
		if err := c.KillAll(within(t)); err != nil {
			t.Error(err)
		}
		lives(t, heir)
	})
}

// recycle starts processes until one has the number.
func recycle(t *testing.T, c cell, pid int) *spawn.Process {
	t.Helper()
	for range 200 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0); err != nil {
			t.Skip("cannot choose numbers of processes: ", err)
		}
		p, _ := c.sh("heir", "exec sleep 1000")
		if p.PID() == pid {
			return p
		}
		if _, err := p.Kill(within(t), 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Skip("other processes took the number each time")
	return nil
}
