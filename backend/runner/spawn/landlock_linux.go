package spawn

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	fsRead = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	fsFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	fsDevice  = fsFile &^ unix.LANDLOCK_ACCESS_FS_EXECUTE
	fsDevices = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK
	fsABI1    = unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1 // every right up to the last one of ABI 1

	noRoot = 1<<0 | 1<<1 // SECBIT_NOROOT and its lock: uid 0 means nothing to exec

	errataSignalScope = 1 << 1 // kernel erratum 2: threads of one process may signal each other whatever their domains
)

// landlock builds the rulesets of sandboxes. The paths that all share are opened once.
type landlock struct {
	abi    int
	scoped bool // signals can be scoped without keeping this process's own threads from each other
	shared []rule
}

type rule struct {
	path   *os.File
	access uint64
}

func newLandlock() (*landlock, error) {
	l := &landlock{abi: landlockVersion(unix.LANDLOCK_CREATE_RULESET_VERSION)}
	if l.abi <= 0 {
		return &landlock{}, nil
	}
	l.scoped = l.abi >= 7 || l.abi == 6 && landlockVersion(unix.LANDLOCK_CREATE_RULESET_ERRATA)&errataSignalScope != 0
	return l, l.shareAll()
}

// shareAll opens what every sandbox may use. Links are followed, so a resolv.conf that lives under /run is readable; /nix/store is
// where /bin/sh points to on some systems.
func (l *landlock) shareAll() error {
	for _, p := range []string{"/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/etc", "/etc/resolv.conf", "/proc", "/nix/store"} {
		if err := l.share(p, fsRead); err != nil {
			return err
		}
	}
	for _, p := range []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"} {
		if err := l.share(p, fsDevice); err != nil {
			return err
		}
	}
	return nil
}

func landlockVersion(flag uintptr) int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, flag)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// share opens a path for the rules of every sandbox; one that does not exist is left out.
func (l *landlock) share(path string, access uint64) error {
	r, err := l.open(path, access)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		l.close()
		return err
	}
	l.shared = append(l.shared, r)
	return nil
}

func (l *landlock) open(path string, access uint64) (rule, error) {
	f, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		return rule{}, fmt.Errorf("landlock: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return rule{}, fmt.Errorf("landlock: %w", err)
	}
	if !st.IsDir() {
		access &= fsFile // the kernel refuses a right on directories for a file
	}
	return rule{f, access & l.rights()}, nil
}

// rights are all the rights on files that this kernel can take away.
func (l *landlock) rights() uint64 {
	all := uint64(fsABI1)
	if l.abi >= 2 {
		all |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if l.abi >= 3 {
		all |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if l.abi >= 5 {
		all |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	return all
}

// ruleset makes the ruleset of one sandbox; nil when the kernel has no Landlock, or none that would restrict an open sandbox. The caller
// closes it.
func (l *landlock) ruleset(limits Limits) (*os.File, error) {
	if l.abi == 0 || limits.Open && !l.scoped {
		return nil, nil
	}
	if limits.Open {
		return l.create(unix.LandlockRulesetAttr{})
	}
	set, err := l.closed()
	if err != nil {
		return nil, err
	}
	if err := l.fill(set, limits.Home, limits.ReadOnly); err != nil {
		set.Close()
		return nil, err
	}
	return set, nil
}

// closed makes a ruleset that allows nothing yet.
func (l *landlock) closed() (*os.File, error) {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: l.rights()}
	if l.abi >= 4 {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP
	}
	return l.create(attr)
}

// create makes a ruleset that keeps signals and abstract sockets inside, as far as this kernel can, besides what attr says.
func (l *landlock) create(attr unix.LandlockRulesetAttr) (*os.File, error) {
	size := unsafe.Offsetof(attr.Handled_access_net)
	if l.abi >= 4 {
		size = unsafe.Offsetof(attr.Scoped)
	}
	if l.abi >= 6 {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
		if l.scoped {
			attr.Scoped |= unix.LANDLOCK_SCOPE_SIGNAL
		}
		size = unsafe.Offsetof(attr.Scoped) + unsafe.Sizeof(attr.Scoped)
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return nil, fmt.Errorf("landlock: create ruleset: %w", errno)
	}
	return os.NewFile(fd, "landlock ruleset"), nil
}

func (l *landlock) fill(set *os.File, home string, readOnly []string) error {
	for _, r := range l.shared {
		if err := add(set, r); err != nil {
			return err
		}
	}
	for _, p := range readOnly {
		if err := l.addPath(set, p, fsRead); err != nil {
			return err
		}
	}
	// As root a device node made in the home would open the whole disk.
	return l.addPath(set, filepath.Clean(home), l.rights()&^fsDevices)
}

func (l *landlock) addPath(set *os.File, path string, access uint64) error {
	r, err := l.open(path, access)
	if err != nil {
		return err
	}
	defer r.path.Close()
	return add(set, r)
}

func add(set *os.File, r rule) error {
	attr := unix.LandlockPathBeneathAttr{Allowed_access: r.access, Parent_fd: int32(r.path.Fd())}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, set.Fd(), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("landlock: allow %s: %w", r.path.Name(), errno)
	}
	return nil
}

// enter confines the calling thread for good: no new privileges, root without its capabilities once it executes something, no system
// calls that lead around the rest unless open, and the ruleset if there is one.
func enter(set *os.File, open bool) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	// EPERM says that this process has not got the capability to give up capabilities: then it has hardly any.
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, noRoot, 0, 0, 0); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("give up capabilities: %w", err)
	}
	if !open {
		if _, err := denyDetours(); err != nil {
			return err
		}
	}
	if set == nil {
		return nil
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set.Fd(), 0, 0); errno != 0 {
		return fmt.Errorf("landlock: restrict: %w", errno)
	}
	return nil
}

func (l *landlock) close() {
	for _, r := range l.shared {
		r.path.Close()
	}
	l.shared = nil
}
