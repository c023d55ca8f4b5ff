package spawn

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Start starts one command inside and returns once it was executed. A command that is not there is os.ErrNotExist, one that may not be
// executed is os.ErrPermission. It panics when a stream is not set.
func (c *Confinement) Start(cmd Command) (*Process, error) {
	if cmd.Stdin == nil || cmd.Stdout == nil || cmd.Stderr == nil {
		panic("spawn: a Command needs Stdin, Stdout and Stderr")
	}
	if len(cmd.Argv) == 0 || cmd.Argv[0] == "" {
		return nil, fmt.Errorf("spawn: start %s: no command: %w", cmd.ID, os.ErrInvalid)
	}
	defer runtime.KeepAlive(cmd)
	p, err := c.start(cmd)
	if err != nil {
		return nil, c.explain(cmd, err)
	}
	return p, nil
}

func (c *Confinement) start(cmd Command) (*Process, error) {
	if strings.ContainsRune(cmd.Argv[0], 0) {
		return nil, unix.EINVAL
	}
	paths := candidates(cmd, c.as)
	c.turn.Lock()
	defer c.turn.Unlock()
	if c.refusing() {
		return nil, fmt.Errorf("%w: %s is being killed", ErrClosed, c.limits.Name)
	}
	before := c.s.rounds.Load()
	p := &Process{id: cmd.ID, in: c, mark: c.s.marks.take(), done: make(chan struct{})}
	var err error
	if doErr := c.insideLocked(func() { err = c.fork(p, paths, cmd) }); doErr != nil {
		err = doErr
	}
	if c.s.rounds.Load() != before {
		c.s.lookAgain()
	}
	if err != nil {
		c.s.marks.release(p.mark)
		return nil, err
	}
	return p, nil
}

// lookAgain has children looked for once more that ended while a start was under way: somebody looked then, and could not know whose
// they are.
func (s *Spawner) lookAgain() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// fork runs on the cell. The child is entered as p before any reaper may take it for an orphan.
func (c *Confinement) fork(p *Process, paths []string, cmd Command) error {
	c.s.starts.RLock()
	defer c.s.starts.RUnlock()
	c.giveStreams(cmd)
	defer c.s.watchStart()()
	pid, err := forkFirst(paths, cmd.Argv, c.attr(p, cmd))
	if err != nil {
		return err
	}
	if c.limited() {
		if err := settle(pid, c.rlimits()); err != nil {
			return err
		}
	}
	p.pid = pid
	c.remember(p)
	return nil
}

// giveStreams makes the sandbox the owner of the pipes it is given, so that it may open /dev/stdout and /dev/stderr again by name.
func (c *Confinement) giveStreams(cmd Command) {
	if !c.ownUID {
		return
	}
	for _, f := range []*os.File{cmd.Stdin, cmd.Stdout, cmd.Stderr} {
		var fs unix.Statfs_t
		if unix.Fstatfs(int(f.Fd()), &fs) == nil && fs.Type == unix.PIPEFS_MAGIC {
			_ = unix.Fchown(int(f.Fd()), int(c.as.uid), int(c.as.gid)) // refused: they can be written to all the same
		}
	}
}

// forkFirst executes the first of paths that can be, as execvp(3) would: one that may not be executed is remembered, not final.
func forkFirst(paths, argv []string, attr *syscall.ProcAttr) (int, error) {
	var refused error
	for _, path := range paths {
		pid, err := syscall.ForkExec(path, argv, attr)
		switch {
		case err == nil:
			return pid, nil
		case errors.Is(err, unix.EACCES):
			refused = err
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		default:
			return 0, err
		}
	}
	if refused != nil {
		return 0, refused
	}
	return 0, unix.ENOENT
}

func (c *Confinement) attr(p *Process, cmd Command) *syscall.ProcAttr {
	return &syscall.ProcAttr{
		Dir: cmd.Dir, Env: c.environ(p.mark, cmd),
		Files: []uintptr{cmd.Stdin.Fd(), cmd.Stdout.Fd(), cmd.Stderr.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, Credential: c.credential(p.mark), Ptrace: c.limited()},
	}
}

// credential is nil when the child is to be who we are.
func (c *Confinement) credential(m mark) *syscall.Credential {
	if !c.s.able.Marks && !c.s.able.UIDs {
		return nil
	}
	cred := &syscall.Credential{Uid: c.as.uid, Gid: c.as.gid}
	if m.gid != 0 {
		cred.Groups = []uint32{m.gid}
	}
	return cred
}

func newIdentity(l Limits) identity {
	id := identity{uid: uint32(os.Getuid()), gid: uint32(os.Getgid())}
	if l.UID != 0 {
		id.uid = l.UID
	}
	if l.GID != 0 {
		id.gid = l.GID
	}
	return id
}

// environ is the command's, and where no uid tells the sandbox apart the marks by which its processes are found again.
func (c *Confinement) environ(m mark, cmd Command) []string {
	if c.ownUID && m.gid != 0 {
		return cmd.Env
	}
	env := make([]string, 0, len(cmd.Env)+2)
	for _, kv := range cmd.Env {
		if !strings.HasPrefix(kv, envSandbox) && !strings.HasPrefix(kv, envProcess) {
			env = append(env, kv)
		}
	}
	return append(env, envSandbox+c.limits.Name, envProcess+cmd.ID)
}

// explain names the command, and tells a missing directory from a missing command: the kernel answers the same for both. Only where the
// sandbox itself was told that something is missing: of what it may not see, it is not said whether it is there.
func (c *Confinement) explain(cmd Command, err error) error {
	if errors.Is(err, ErrClosed) {
		return err
	}
	missing := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
	if st, dirErr := os.Stat(cmd.Dir); missing && cmd.Dir != "" && (dirErr != nil || !st.IsDir()) {
		return fmt.Errorf("spawn: start %s: directory %q: %w", cmd.ID, cmd.Dir, orNotExist(errors.Unwrap(dirErr)))
	}
	return fmt.Errorf("spawn: start %s: %s: %w", cmd.ID, cmd.Argv[0], err)
}
