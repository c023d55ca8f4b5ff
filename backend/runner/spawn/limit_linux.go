package spawn

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

const cldTrapped = 4 // CLD_TRAPPED: a traced child has stopped

// rlimit is one limit of a process, soft and hard alike.
type rlimit struct {
	resource int
	value    uint64
}

// limited reports whether children have to be stopped before their first instruction, to be limited then.
func (c *Confinement) limited() bool { return c.s.able.ProcessLimit && len(c.rlimits()) > 0 }

// rlimits lists the limits that are asked for. The number of processes is counted over a uid, so it is a limit only for a sandbox that
// has one of its own.
func (c *Confinement) rlimits() []rlimit {
	var out []rlimit
	if n := c.limits.MemoryMB; n > 0 {
		out = append(out, rlimit{unix.RLIMIT_AS, uint64(n) << 20})
	}
	if n := c.limits.PIDs; n > 0 && c.ownUID {
		out = append(out, rlimit{unix.RLIMIT_NPROC, uint64(n)})
	}
	if n := c.limits.OpenFiles; n > 0 {
		out = append(out, rlimit{unix.RLIMIT_NOFILE, n})
	}
	return out
}

// settle limits a child that was forked to be traced by the calling thread, and lets it go. It is stopped at the end of its exec, with
// none of its instructions run. A child that cannot be limited is killed and reaped.
func settle(pid int, limits []rlimit) error {
	_, err := stopped(pid)
	for _, l := range limits {
		if err == nil {
			err = limit(pid, l)
		}
	}
	if err == nil {
		err = unix.PtraceDetach(pid)
	}
	if err == nil || errors.Is(err, unix.ESRCH) { // killed meanwhile, which its status will say
		return nil
	}
	discard(pid)
	return fmt.Errorf("limit: %w", err)
}

// stopped waits for the next stop of a traced child and returns its signal. A child that ended instead is ESRCH, and left to the reaper.
func stopped(pid int) (unix.Signal, error) {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, err
		case info.Code != cldTrapped:
			return 0, unix.ESRCH
		default:
			return unix.Signal(siginfoChild(&info).status & 0x7f), nil
		}
	}
}

// limit lowers one limit of a stopped child. What the caller itself may not have, the child does not get either.
func limit(pid int, l rlimit) error {
	var now unix.Rlimit
	if err := unix.Prlimit(0, l.resource, nil, &now); err != nil {
		return err
	}
	to := unix.Rlimit{Cur: min(l.value, now.Max), Max: min(l.value, now.Max)}
	err := unix.Prlimit(pid, l.resource, &to, nil)
	if errors.Is(err, unix.EPERM) { // a child of another uid is only for CAP_SYS_RESOURCE, but every process may limit itself
		err = limitItself(pid, l.resource, to)
	}
	return err
}

// discard kills and reaps a child that was never entered.
func discard(pid int) {
	_ = unix.Kill(pid, unix.SIGKILL)
	for {
		if _, err := unix.Wait4(pid, nil, unix.WALL, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
