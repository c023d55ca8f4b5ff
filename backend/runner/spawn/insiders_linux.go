package spawn

import (
	"golang.org/x/sys/unix"
)

const (
	envSandbox = "KEEPWELL_SANDBOX="
	envProcess = "KEEPWELL_PROCESS="
)

// insidersLocked lists the processes of the sandbox that have not ended.
func (c *Confinement) insidersLocked() (tasks []task, err error) {
	if c.scopedLocked() {
		return c.insidersFromLocked(nil)
	}
	err = c.asItself(func(as *cell) error {
		tasks, err = c.insidersFromLocked(as)
		return err
	})
	return tasks, err
}

// insidersFromLocked asks whom it can: a thread whose signals reach the sandbox alone, which is as or the cell; else what the processes
// carry.
func (c *Confinement) insidersFromLocked(as *cell) ([]task, error) {
	all, err := pids()
	if err != nil {
		return nil, err
	}
	if as == nil && c.scopedLocked() {
		as = c.cell
	}
	if as != nil {
		as.do(func() { all = reachable(all) })
		return look(all, func(task) bool { return true })
	}
	tasks, err := look(all, func(task) bool { return true })
	if err != nil {
		return nil, err
	}
	return c.related(tasks), nil
}

// scopedLocked reports whether the cell is there and can signal the sandbox only.
func (c *Confinement) scopedLocked() bool { return c.cell != nil && c.s.able.SignalScope }

// reachable keeps the processes that the calling thread may signal. A third of a microsecond each, where reading /proc costs thirty.
func reachable(all []int) []int {
	kept := all[:0]
	for _, pid := range all {
		if unix.Kill(pid, 0) == nil {
			kept = append(kept, pid)
		}
	}
	return kept
}

// look reads the processes that have not ended and keeps some.
func look(all []int, keep func(task) bool) ([]task, error) {
	var r reader
	var out []task
	for _, pid := range all {
		t, ok, err := r.task(pid)
		if err != nil {
			return nil, err
		}
		if ok && !t.ended && keep(t) {
			out = append(out, t)
		}
	}
	return out, nil
}

// related keeps what descends from a process of the sandbox or carries its name.
func (c *Confinement) related(tasks []task) []task {
	c.mu.Lock()
	roots := make([]*Process, 0, len(c.live))
	for p := range c.live {
		roots = append(roots, p)
	}
	c.mu.Unlock()
	var r reader
	return closure(tasks, func(t task) bool {
		for _, p := range roots {
			if p.leads(t) {
				return true
			}
		}
		return r.carries(t.pid, envSandbox+c.limits.Name)
	})
}

// leads reports whether t is the process, or in the session or the group it began with. A number that was reaped leads nobody: it may
// be another's.
func (p *Process) leads(t task) bool {
	return (t.pid == p.pid || t.sid == p.pid || t.pgid == p.pid) && !p.ended()
}

func (p *Process) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reaped
}

// closure keeps the roots, their descendants, and whoever shares a session with one of those.
func closure(tasks []task, root func(task) bool) []task {
	in := make(map[int]bool, len(tasks)) // numbers of processes and sessions
	var kept, rest []task
	for _, t := range tasks {
		if root(t) {
			kept = append(kept, t)
			in[t.pid] = true
		} else {
			rest = append(rest, t)
		}
	}
	for grew := true; grew; {
		grew = false
		left := rest[:0]
		for _, t := range rest {
			if in[t.ppid] || in[t.sid] {
				kept = append(kept, t)
				in[t.pid], grew = true, true
			} else {
				left = append(left, t)
			}
		}
		rest = left
	}
	return kept
}
