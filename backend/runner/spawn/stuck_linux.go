package spawn

import (
	"os"
	"strconv"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// startPatience is how long a child may take between fork and exec: a few microseconds, unless it was stopped by one of its own uid.
// Until it executes, the thread that forked it waits.
const startPatience = 2 * time.Second

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

// runsOurImage reports whether the process still has the executable of this one, as a child has before its exec.
func runsOurImage(pid int) bool {
	var ours, its unix.Stat_t
	if unix.Stat("/proc/self/exe", &ours) != nil || unix.Stat(exeOf(pid), &its) != nil {
		return false
	}
	return ours.Dev == its.Dev && ours.Ino == its.Ino
}

func exeOf(pid int) string { return "/proc/" + strconv.Itoa(pid) + "/exe" }
