package spawn

import (
	"errors"
	"os"
	"strconv"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// startPatience is how long a child may take between fork and exec: a few microseconds, unless it was stopped by one of its own uid.
// Until it executes, the thread that forked it waits.
const startPatience = 2 * time.Second

// A hanging fork holds its processor of the Go runtime, so a garbage collection that begins before the child is killed waits too, and the
// look with it. What is done in this process is therefore best effort against a sandbox that stops its own processes again and again;
// KillStuck does the same from another one.

// watchStart looks for children that hang, again and again from the end of patience until the start is over, which its result says.
func (s *Spawner) watchStart() (over func()) {
	done := make(chan struct{})
	timer := time.AfterFunc(s.patience, func() { // its goroutine ends with the start
		for {
			if n, err := KillStuck(os.Getpid()); n > 0 || err != nil {
				s.log.Warn("a start hung; killed what was stopped before it executed its command", zap.Int("processes", n), zap.Error(err))
			}
			select {
			case <-done:
				return
			case <-time.After(s.patience):
			}
		}
	})
	return func() {
		timer.Stop()
		close(done)
	}
}

// KillStuck kills the children of a process with a Spawner that are stopped and have not executed their command yet, and returns how many
// those were. While there is one, that process may not get on with anything, so this is for another one to call when it does not answer.
func KillStuck(spawner int) (int, error) {
	hung, err := stuck(spawner)
	killed := 0
	for _, t := range hung {
		// Nobody waits for it before its start returns, so the number is still its own.
		if kill := unix.Kill(t.pid, unix.SIGKILL); kill == nil {
			killed++
		} else if !errors.Is(kill, unix.ESRCH) {
			err = errors.Join(err, kill)
		}
	}
	return killed, err
}

// stuck lists the children that are stopped before their exec.
func stuck(spawner int) ([]task, error) {
	all, err := pids()
	if err != nil {
		return nil, err
	}
	return look(all, func(t task) bool {
		return t.ppid == spawner && (t.state == 'T' || t.state == 't') && sameImage(t.pid, spawner)
	})
}

// sameImage reports whether the process still has the executable of its parent, as a child has before its exec. To an ordinary user who
// hides from other processes, such a child is hidden too.
func sameImage(pid, parent int) bool {
	var ours, its unix.Stat_t
	if err := unix.Stat(exeOf(pid), &its); err != nil {
		return errors.Is(err, unix.EACCES)
	}
	if unix.Stat(exeOf(parent), &ours) != nil {
		return false
	}
	return ours.Dev == its.Dev && ours.Ino == its.Ino
}

func exeOf(pid int) string { return "/proc/" + strconv.Itoa(pid) + "/exe" }
