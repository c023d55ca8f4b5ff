package spawn

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// KillAll kills every process inside, whatever group or session it is in, until none is left or ctx ends. Meanwhile nothing can be started. An
// error means that some may live. It may be called again, and after Close too.
func (c *Confinement) KillAll(ctx context.Context) error {
	c.setKilling(1)
	defer c.setKilling(-1)
	left := 0
	err := c.asItself(func(as *cell) error {
		return eventually(ctx, nil, func(round int) (bool, error) { return c.killRound(as, round, &left) })
	})
	if err != nil {
		return fmt.Errorf("spawn: kill all of %s: %d processes may live: %w", c.limits.Name, left, err)
	}
	return nil
}

// killRound kills all once, and says whether none was left. It does not wait for its turn: a start that was stopped between fork and exec
// has that, and what ends such a start is the next round.
func (c *Confinement) killRound(as *cell, round int, left *int) (bool, error) {
	var sweepErr error
	if as != nil {
		sweepErr = killFrom(as, unix.SIGKILL)
	}
	if !c.turn.TryLock() {
		*left = 1 // the one that is being started, or whoever holds it up
		return false, errors.Join(sweepErr, c.unblock(as, round))
	}
	defer c.turn.Unlock()
	if as == nil {
		sweepErr = c.broadcastLocked(nil, unix.SIGKILL)
	}
	tasks, err := c.insidersFromLocked(as)
	if *left = len(tasks); err == nil && *left == 0 {
		return c.reapLive(), nil
	}
	return false, errors.Join(sweepErr, err, sendAll(tasks, unix.SIGKILL))
}

// hungAfter is the round of a kill, an eighth of a second after its first one, from which on a start that is still under way is taken to hang.
const hungAfter = 8

// unblock ends a start that hangs in a sandbox whose processes can only be reached by way of the thread that the start holds.
func (c *Confinement) unblock(as *cell, round int) error {
	if as != nil || round < hungAfter {
		return nil
	}
	_, err := KillStuck(os.Getpid())
	return err
}

// Refuse keeps new commands out for good: what waits to be started fails with ErrClosed, and nothing is started after it but a command
// whose start is under way, which KillAll ends.
func (c *Confinement) Refuse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuses = true
}

// setKilling keeps new commands out. A start that is under way has its turn, which the sweep must have had before it knows who is left.
func (c *Confinement) setKilling(by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kills += by
}

func (c *Confinement) refusing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refuses || c.kills > 0
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

// broadcastLocked signals every process of the sandbox in one system call, which no fork can slip past. Sandboxes that can be reached in no
// such way are left alone: the caller goes on one by one. as is what asItself gives.
func (c *Confinement) broadcastLocked(as *cell, sig unix.Signal) error {
	switch {
	case as != nil:
		return killFrom(as, sig)
	case c.scopedLocked():
		return killFrom(c.cell, sig)
	}
	return nil
}

// killFrom signals all processes that a thread may signal.
func killFrom(thread *cell, sig unix.Signal) (err error) {
	thread.do(func() { err = unix.Kill(-1, sig) })
	return signalled(-1, err)
}

// asItself runs f with a thread that may signal the processes of the sandbox's own uid and no others; with nil where it has none.
func (c *Confinement) asItself(f func(as *cell) error) error {
	if !c.ownUID {
		return f(nil)
	}
	as, err := newCell(func() error { return become(c.limits.UID) })
	if err != nil {
		return err
	}
	defer as.close() // its identity dies with it
	return f(as)
}

// become makes the effective uid of the calling thread another one, while its real and saved ones are nobody's, so that processes of that
// uid in turn may neither signal nor trace it.
func become(uid uint32) error {
	_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobodyUID, uintptr(uid), nobodyUID)
	if errno != 0 {
		return fmt.Errorf("spawn: act as uid %d: %w", uid, errno)
	}
	return nil
}

// frozenLocked stops the sandbox, runs f, and lets everything go on that was not stopped before. It keeps the turn, so that no
// start is stopped between fork and exec, where it would hold the cell.
func (c *Confinement) frozenLocked(before []task, f func() error) error {
	err := c.asItself(func(as *cell) error { return c.broadcastLocked(as, unix.SIGSTOP) })
	if err != nil {
		return err
	}
	err = f()
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
