package spawn

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// probe finds out what this machine allows, by trying it on a child that never runs an instruction: it stops at the end of its exec and
// is killed there.
func probe(l *landlock) Abilities {
	a := Abilities{LandlockABI: l.abi}
	results := make(chan Abilities)
	onThread(func() { // ends with the probe: it restricts itself
		a.NoNewPrivs = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == nil
		if os.Getuid() == 0 {
			a.UIDs, a.Marks = probeIdentity()
			a.OwnIPC = ownIPC() == nil
		}
		probeStopped(l, &a)
		filtered, err := denyDetours() // last: it is for good
		a.NoTCPBind = l.abi >= 4 && filtered && err == nil
		results <- a
	})
	return <-results
}

// probeIdentity tries to be somebody else with and without a mark. Whoever gets as far as being refused the executable has become that other.
func probeIdentity() (uids, marks bool) {
	try := func(groups []uint32) bool {
		pid, err := forkStopped(&syscall.Credential{Uid: nobodyUID, Gid: nobodyUID, Groups: groups})
		if err == nil {
			discard(pid)
		}
		return err == nil || errors.Is(err, unix.EACCES)
	}
	if try([]uint32{firstMark + markCount - 1}) {
		return true, true
	}
	return try(nil), false
}

// probeStopped tries limits on a stopped child, and whether a restricted thread is kept from signalling it.
func probeStopped(l *landlock, a *Abilities) {
	pid, err := forkStopped(nil)
	if err != nil {
		return
	}
	defer discard(pid)
	var now unix.Rlimit
	if _, err := stopped(pid); err == nil && unix.Prlimit(pid, unix.RLIMIT_CORE, nil, &now) == nil {
		a.ProcessLimit = true
	}
	if l.scoped {
		a.SignalScope = !canSignalFromInside(l, pid)
	}
}

// canSignalFromInside asks from a thread that allows itself nothing. What cannot be found out counts as yes.
func canSignalFromInside(l *landlock, pid int) bool {
	set, err := l.closed()
	if err != nil {
		return true
	}
	defer set.Close()
	refused := make(chan bool)
	onThread(func() { // ends with its one question
		refused <- enter(set, false) == nil && errors.Is(unix.Kill(pid, 0), unix.EPERM)
	})
	return !<-refused
}

// forkStopped starts this very program and stops it before its first instruction. Were this process to die now, its copy would be let
// go and run: so it dies with the calling thread.
func forkStopped(cred *syscall.Credential) (int, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	fd := null.Fd()
	return syscall.ForkExec("/proc/self/exe", []string{"probe"}, &syscall.ProcAttr{
		Files: []uintptr{fd, fd, fd}, Sys: &syscall.SysProcAttr{Setsid: true, Credential: cred, Ptrace: true, Pdeathsig: unix.SIGKILL},
	})
}
