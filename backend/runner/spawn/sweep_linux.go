package spawn

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// KillAll kills every process inside, whatever group or session it is in, until none is left or ctx ends. Meanwhile nothing can be started. An
// error means that some may live. It may be called again, and after Close too.
func (c *Confinement) KillAll(ctx context.Context) error {
	c.setKilling(1)
	defer c.setKilling(-1)
	left := 0
	err := eventually(ctx, nil, func(int) (bool, error) {
		sweepErr := c.broadcast(unix.SIGKILL)
		tasks, err := c.insiders()
		if left = len(tasks); err == nil && left == 0 {
			return c.reapLive(), nil
		}
		return false, errors.Join(sweepErr, err, sendAll(tasks, unix.SIGKILL))
	})
	if err != nil {
		return fmt.Errorf("spawn: kill all of %s: %d processes may live: %w", c.limits.Name, left, err)
	}
	return nil
}

// setKilling keeps new commands out. A start that is under way has its turn, for which the sweep waits before it looks who is left.
func (c *Confinement) setKilling(by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kills += by
}

func (c *Confinement) beingKilled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kills > 0
}

// reapLive collects what has ended and says whether that was everything.
func (c *Confinement) reapLive() bool {
	c.mu.Lock()
	live := make([]*Process, 0, len(c.live))
	for p := range c.live {
		live = append(live, p)
	}
	c.mu.Unlock()
	all := true
	for _, p := range live {
		all = p.tryReap() && all
	}
	return all
}

// errNoBroadcast says that processes have to be signalled one by one.
var errNoBroadcast = errors.New("spawn: no way to signal the sandbox as a whole")

// broadcast signals every process of the sandbox in one system call, which no fork can slip past. Sandboxes that can be reached in no such
// way are left alone: the caller goes on one by one.
func (c *Confinement) broadcast(sig unix.Signal) error {
	if c.ownUID { // takes no turn: a start that hangs is killed too
		return broadcastUID(c.limits.UID, sig)
	}
	c.turn.Lock()
	defer c.turn.Unlock()
	return c.broadcastLocked(sig)
}

func (c *Confinement) broadcastLocked(sig unix.Signal) error {
	if c.ownUID {
		return broadcastUID(c.limits.UID, sig)
	}
	if !c.scopedLocked() {
		return nil
	}
	var err error
	c.cell.do(func() { err = unix.Kill(-1, sig) })
	return signalled(-1, err)
}

// broadcastUID signals all processes of a uid from a thread that may signal those and no others: its effective uid is theirs, while its
// real and saved ones are nobody's, so that they in turn may neither signal nor trace it.
func broadcastUID(uid uint32, sig unix.Signal) error {
	result := make(chan error)
	onThread(func() { // ends with its one call; the identity dies with the thread
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobodyUID, uintptr(uid), nobodyUID)
		if errno != 0 {
			result <- fmt.Errorf("spawn: act as uid %d: %w", uid, errno)
			return
		}
		result <- signalled(-1, unix.Kill(-1, sig))
	})
	return <-result
}

// frozenLocked stops the sandbox, runs f, and lets everything go on that was not stopped before. It keeps the turn, so that no
// start is stopped between fork and exec, where it would hold the cell.
func (c *Confinement) frozenLocked(before []task, f func() error) error {
	if err := c.broadcastLocked(unix.SIGSTOP); err != nil {
		return err
	}
	err := f()
	tasks, listErr := c.insidersLocked()
	stopped := map[int]bool{}
	for _, t := range before {
		stopped[t.pid] = t.state == 'T'
	}
	var r reader
	for _, t := range tasks {
		if !stopped[t.pid] {
			listErr = errors.Join(listErr, r.send(t, unix.SIGCONT))
		}
	}
	return errors.Join(err, listErr)
}
