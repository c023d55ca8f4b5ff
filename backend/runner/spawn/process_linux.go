package spawn

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Process is a started process. It is safe for concurrent use.
type Process struct {
	id   string
	pid  int
	in   *Confinement
	mark mark
	done chan struct{}

	mu     sync.Mutex // guards the fields below; held across wait4(2) and kill(2), so that the number is ours while it is signalled
	reaped bool
	status syscall.WaitStatus // written once, before done is closed
}

// PID returns the number of the process, which means nothing after Done.
func (p *Process) PID() int { return p.pid }

// Done is closed once the process was reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Status returns how it ended, once Done is closed; before that it is 0. It is neither Exited nor Signaled when somebody else in this
// process waited for the child, so that nobody knows.
func (p *Process) Status() syscall.WaitStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// Signal sends sig to the process group of the process; false when the process has ended already, and then nothing is signalled.
func (p *Process) Signal(sig syscall.Signal) (bool, error) {
	if p.tryReap() {
		return false, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return false, nil
	}
	switch err := unix.Kill(-p.pid, sig); {
	case errors.Is(err, unix.ESRCH):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("spawn: signal %s with %s: %w", p.id, unix.SignalName(sig), err)
	}
	return true, nil
}

// tryReap collects the process if it has ended, and says whether it is collected.
func (p *Process) tryReap() bool {
	p.mu.Lock()
	if p.reaped {
		p.mu.Unlock()
		return true
	}
	status, ended := wait(p.pid)
	if ended {
		p.reaped, p.status = true, syscall.WaitStatus(status)
	}
	p.mu.Unlock()
	if ended {
		p.in.forget(p)
		close(p.done)
	}
	return ended
}
