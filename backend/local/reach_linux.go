package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// reach returns the path by which sandboxes with uids of their own get to their homes below dir. The state directory is closed
// to them, and so may be the directories above it: hence dir is mounted where everybody may pass. A host that a Backend started
// has mounts of its own, so that nobody else sees this one. Where mounting is not allowed the path to dir itself has to be passable.
func reach(dir, mark string) (path string, undo func(), err error) {
	at := filepath.Join(runDir, "homes-"+strings.TrimSuffix(mark, "-"))
	if err := os.MkdirAll(at, 0o711); err != nil {
		return "", nil, fmt.Errorf("local: %w", err)
	}
	for unix.Unmount(at, unix.MNT_DETACH) == nil { // what a host without mounts of its own left behind
	}
	undo = func() {
		_ = unix.Unmount(at, unix.MNT_DETACH)
		_ = os.Remove(at) // it is empty
	}
	err = unix.Mount(dir, at, "", unix.MS_BIND, "")
	if err == nil {
		err = unix.Mount("", at, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, "")
	}
	if err == nil {
		return at, undo, nil
	}
	undo()
	closed := firstClosed(dir)
	switch {
	case !errors.Is(err, unix.EPERM):
		return "", nil, fmt.Errorf("local: mount %s at %s: %w", dir, at, err)
	case closed != "":
		return "", nil, fmt.Errorf("local: sandboxes with uids of their own cannot pass %s, and this process may not mount a way around it:"+
			" give it CAP_SYS_ADMIN, or a state directory that others may pass", closed)
	}
	return dir, nil, nil
}

// firstClosed returns the topmost directory of the path that others may not pass, or "".
func firstClosed(path string) string {
	closed := ""
	for {
		fi, err := os.Stat(path)
		if err != nil || fi.Mode().Perm()&0o001 == 0 {
			closed = path
		}
		if path == filepath.Dir(path) {
			return closed
		}
		path = filepath.Dir(path)
	}
}

// detached are the attributes of a host runner: a session of its own, and as root, where that is allowed, mounts of its own.
func detached(mounts bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if mounts && os.Geteuid() == 0 {
		attr.Unshareflags = syscall.CLONE_NEWNS
	}
	return attr
}

// ownProgram returns a path of the running program that is good even when its file was deleted, as `go run` does.
func ownProgram() (string, error) { return "/proc/self/exe", nil }
