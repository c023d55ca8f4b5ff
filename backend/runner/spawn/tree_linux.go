package spawn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	pollFirst   = 500 * time.Microsecond
	pollAtMost  = 50 * time.Millisecond
	plainRounds = 3 // kills before the sandbox is frozen: what outruns those multiplies
)

// Kill ends the process and all of its descendants: SIGTERM, grace, SIGKILL; with no grace SIGKILL at once. It returns once
// all are gone: killed is true when the process was alive when Kill began. An error means that some may live.
func (p *Process) Kill(ctx context.Context, grace time.Duration) (killed bool, err error) {
	killed = !p.tryReap()
	if grace > 0 && killed {
		p.ask(ctx, grace)
	}
	left := 0
	err = eventually(ctx, p.done, func(round int) (bool, error) {
		tree, others, err := p.tree()
		if left = len(tree); err != nil || left == 0 {
			return p.tryReap() && err == nil, err
		}
		if round < plainRounds {
			return false, sendAll(tree, unix.SIGKILL)
		}
		return false, p.killFrozen(others)
	})
	if err != nil {
		return killed, fmt.Errorf("spawn: kill %s: %d processes may live: %w", p.id, max(left, 1), err)
	}
	return killed, nil
}

// killFrozen kills the tree while the whole sandbox stands still.
func (p *Process) killFrozen(others []task) error {
	p.in.turn.Lock()
	defer p.in.turn.Unlock()
	return p.in.frozenLocked(others, func() error {
		tree, _, err := p.treeLocked()
		return errors.Join(err, sendAll(tree, unix.SIGKILL))
	})
}

// ask sends SIGTERM to the tree and waits until it is gone, for the length of grace at most. What is left then is for SIGKILL.
func (p *Process) ask(ctx context.Context, grace time.Duration) {
	tree, _, err := p.tree()
	if err != nil || sendAll(tree, unix.SIGTERM) != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	timer := p.in.s.clk.AfterFunc(grace, cancel)
	defer cancel()
	defer timer.Stop()
	_ = eventually(ctx, p.done, func(int) (bool, error) {
		if !p.tryReap() {
			return false, nil
		}
		tree, _, err := p.tree()
		return err == nil && len(tree) == 0, nil
	})
}

// eventually repeats try until it is done or ctx ends; then it returns the last error of try, or that of ctx. An early look follows when
// changed is closed. The pauses are real ones: they pace this process, not what it measures.
func eventually(ctx context.Context, changed <-chan struct{}, try func(round int) (bool, error)) error {
	pause := pollFirst
	for round := 0; ; round++ {
		done, err := try(round)
		if done {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(ctx.Err(), err)
		case <-changed:
			timer.Stop()
			changed = nil
		case <-timer.C:
			pause = min(2*pause, pollAtMost)
		}
	}
}

// tree divides the processes of the sandbox into those of this process's tree and the others.
func (p *Process) tree() (tree, others []task, err error) {
	p.in.turn.Lock()
	defer p.in.turn.Unlock()
	return p.treeLocked()
}

func (p *Process) treeLocked() (tree, others []task, err error) {
	tasks, err := p.in.insidersLocked()
	if err != nil {
		return nil, nil, err
	}
	if p.in.s.marks.valid(p.mark) && p.in.ownUID {
		tree = having(tasks, p.mark.gid)
	} else {
		tree = p.descentLocked(tasks)
	}
	return tree, without(tasks, tree), nil
}

func having(tasks []task, gid uint32) []task {
	var out []task
	for _, t := range tasks {
		for _, g := range t.groups {
			if g == gid {
				out = append(out, t)
				break
			}
		}
	}
	return out
}

// descentLocked finds the tree by what hangs together. A process that fits nowhere is in it when no other start can have made it.
func (p *Process) descentLocked(tasks []task) []task {
	if p.in.onlyStartLocked(p) {
		return tasks
	}
	var r reader
	return closure(tasks, func(t task) bool {
		return p.leads(t) || p.in.s.marks.valid(p.mark) && len(having([]task{t}, p.mark.gid)) > 0 || r.carries(t.pid, envProcess+p.id)
	})
}

// onlyStartLocked reports whether every process that the cell reaches stems from p.
func (c *Confinement) onlyStartLocked(p *Process) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.scopedLocked() && c.lone == p
}

func without(tasks, some []task) []task {
	drop := make(map[int]bool, len(some))
	for _, t := range some {
		drop[t.pid] = true
	}
	var out []task
	for _, t := range tasks {
		if !drop[t.pid] {
			out = append(out, t)
		}
	}
	return out
}

func sendAll(tasks []task, sig unix.Signal) error {
	var r reader
	var errs []error
	for _, t := range tasks {
		if err := r.send(t, sig); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
