package spawn

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

const insistAfter = 64 // attempts to find no start under way

// reapLoop collects ended children. Signals merge, so each one is only a hint to look at all of them.
func (s *Spawner) reapLoop() {
	defer s.reaper.Done()
	for {
		select {
		case <-s.stop:
			return
		case <-s.signals:
		case <-s.wake:
		}
		s.rounds.Add(1)
		if s.reap {
			s.reapAll()
		} else {
			s.reapOwn()
		}
	}
}

// reapOwn collects our own children one by one and leaves all others to whoever started them.
func (s *Spawner) reapOwn() {
	s.mu.Lock()
	procs := make([]*Process, 0, len(s.procs))
	for _, p := range s.procs {
		procs = append(procs, p)
	}
	s.mu.Unlock()
	for _, p := range procs {
		p.tryReap()
	}
}

// reapAll collects every ended child. It looks before it waits: a status is taken either for the Process it belongs to, or when
// no start is under way that it could belong to.
func (s *Spawner) reapAll() {
	for {
		pid := endedChild()
		if pid == 0 {
			return
		}
		if p := s.process(pid); p != nil {
			p.tryReap()
			continue
		}
		if !s.lockStarts() {
			s.rounds.Add(1)
			s.reapOwn() // the unknown child hides the others; the end of the start wakes us
			return
		}
		if s.process(pid) == nil {
			wait(pid)
		}
		s.starts.Unlock()
	}
}

// lockStarts keeps starts out if none is under way. It insists only after many attempts in vain: one start that hangs must not hold up
// the others, and many that follow each other must not let orphans pile up.
func (s *Spawner) lockStarts() bool {
	if s.starts.TryLock() {
		s.refused = 0
		return true
	}
	if s.refused++; s.refused < insistAfter {
		return false
	}
	s.refused = 0
	s.starts.Lock()
	return true
}

func (s *Spawner) process(pid int) *Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.procs[pid]
}

// endedChild returns the number of a child that has ended and leaves it unreaped; 0 when there is none.
func endedChild() int {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0
		}
		return int(siginfoChild(&info).pid)
	}
}

// child is what the kernel says about a child in a siginfo.
type child struct {
	pid    int32
	uid    uint32
	status int32
}

// siginfoChild returns those fields: they follow three ints, aligned as a pointer.
func siginfoChild(info *unix.Siginfo) *child {
	const word = unsafe.Sizeof(uintptr(0))
	const offset = (3*4 + word - 1) &^ (word - 1)
	return (*child)(unsafe.Add(unsafe.Pointer(info), offset))
}

// statusUnknown is neither exited nor signaled.
const statusUnknown unix.WaitStatus = 0x7f

// wait reaps pid if it has ended. When there is no such child any more somebody else took its status, which counts as ended.
func wait(pid int) (status unix.WaitStatus, reaped bool) {
	for {
		got, err := unix.Wait4(pid, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return statusUnknown, true
		default:
			return status, got == pid
		}
	}
}
