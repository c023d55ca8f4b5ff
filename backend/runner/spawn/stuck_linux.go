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
// look with it. What is done here is therefore best effort against a sandbox that stops its own processes again and again.

// watchStart looks for children that hang, again and again from the end of patience until the start is over, which its result says.
func (s *Spawner) watchStart() (over func()) {
	done := make(chan struct{})
	timer := time.AfterFunc(s.patience, func() { // its goroutine ends with the start
		for {
			s.killStuck()
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

// killStuck kills children of ours that are stopped and have not executed anything yet. Nobody waits for them before their start returns,
// so their numbers are theirs.
func (s *Spawner) killStuck() {
	all, err := pids()
	if err != nil {
		s.log.Error("a start hangs", zap.Error(err))
		return
	}
	stuck, err := look(all, func(t task) bool {
		return t.ppid == os.Getpid() && (t.state == 'T' || t.state == 't') && s.process(t.pid) == nil && runsOurImage(t.pid)
	})
	if err != nil {
		s.log.Error("a start hangs", zap.Error(err))
	}
	for _, t := range stuck {
		s.log.Warn("killed a process that was stopped before it executed its command", zap.Int("pid", t.pid), zap.Error(unix.Kill(t.pid, unix.SIGKILL)))
	}
}

// runsOurImage reports whether the process still has the executable of this one, as a child has before its exec. To an ordinary user
// who hides from other processes, such a child is hidden too.
func runsOurImage(pid int) bool {
	var ours, its unix.Stat_t
	if err := unix.Stat(exeOf(pid), &its); err != nil {
		return errors.Is(err, unix.EACCES)
	}
	if unix.Stat("/proc/self/exe", &ours) != nil {
		return false
	}
	return ours.Dev == its.Dev && ours.Ino == its.Ino
}

func exeOf(pid int) string { return "/proc/" + strconv.Itoa(pid) + "/exe" }
