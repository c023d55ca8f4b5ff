package spawn

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// onThread runs f on a thread of its own that dies when f returns, whatever f made of the thread's identity. The caller does not wait.
func onThread(f func()) {
	go func() { // owned by f: ends with it
		runtime.LockOSThread() // never unlocked, so the runtime ends the thread with the goroutine
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		// The main thread cannot end: it would stay, parked and restricted, and stand for the whole process in /proc. While it is
		// held here the scheduler has to pick another one.
		taken := make(chan struct{})
		onThread(func() {
			close(taken)
			f()
		})
		<-taken
		runtime.UnlockOSThread()
	}()
}

// cell is a thread inside a sandbox. Whatever it forks is confined, and where signals are scoped those it sends reach the sandbox alone.
type cell struct {
	jobs chan func()
	gone chan struct{} // closed when the thread took its last job
}

// newCell starts a thread, has it enter the confinement, and returns once it is inside.
func newCell(enter func() error) (*cell, error) {
	c := &cell{jobs: make(chan func()), gone: make(chan struct{})}
	entered := make(chan error)
	onThread(func() { // ended by close
		defer close(c.gone)
		err := enter()
		entered <- err
		if err != nil {
			return
		}
		for job := range c.jobs {
			job()
		}
	})
	if err := <-entered; err != nil {
		return nil, err
	}
	return c, nil
}

// do runs f on the thread and waits for it. Not after close.
func (c *cell) do(f func()) {
	done := make(chan struct{})
	c.jobs <- func() {
		defer close(done)
		f()
	}
	<-done
}

// close ends the thread and waits for its last job.
func (c *cell) close() {
	close(c.jobs)
	<-c.gone
}
