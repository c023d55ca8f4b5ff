//go:build !linux

package spawn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/benbjohnson/clock"
)

// KillStuck finds nothing here.
func KillStuck(int) (int, error) { return 0, errors.ErrUnsupported }

// RemoveIPC finds nothing here.
func RemoveIPC(uint32) error { return nil }

// Spawner starts processes and is the only one that waits for them. It is safe for concurrent use. Here it confines nothing.
type Spawner struct{ clk clock.Clock }

// New returns a Spawner. Orphans are not adopted here, whatever cfg says.
func New(cfg Config) (*Spawner, error) {
	s := &Spawner{clk: cfg.Clock}
	if s.clk == nil {
		s.clk = clock.New()
	}
	if cfg.Logger != nil {
		cfg.Logger.Warn("processes run unconfined on this system")
	}
	return s, nil
}

// Abilities says what this machine allows: nothing.
func (s *Spawner) Abilities() Abilities { return Abilities{} }

// Close does nothing here.
func (s *Spawner) Close() {}

// Confinement is the handle on the processes of one sandbox. It is safe for concurrent use.
type Confinement struct {
	s      *Spawner
	limits Limits

	mu      sync.Mutex // guards the fields below
	live    map[*Process]struct{}
	kills   int
	refuses bool
}

// Confine prepares one sandbox. A uid of its own cannot be had here.
func (s *Spawner) Confine(l Limits) (*Confinement, error) {
	if l.UID != 0 && int(l.UID) != os.Getuid() {
		return nil, fmt.Errorf("spawn: confine %s: uid %d: %w", l.Name, l.UID, os.ErrPermission)
	}
	if st, err := os.Stat(l.Home); err != nil || !st.IsDir() {
		return nil, fmt.Errorf("spawn: confine %s: home %q is not a directory: %w", l.Name, l.Home, os.ErrNotExist)
	}
	return &Confinement{s: s, limits: l, live: map[*Process]struct{}{}}, nil
}

// Abilities says what is enforced on this sandbox: nothing.
func (c *Confinement) Abilities() Abilities { return Abilities{} }

// Start starts one command. A command that is not there is os.ErrNotExist, one that may not be executed is os.ErrPermission. It panics when
// a stream is not set.
func (c *Confinement) Start(cmd Command) (*Process, error) {
	if cmd.Stdin == nil || cmd.Stdout == nil || cmd.Stderr == nil {
		panic("spawn: a Command needs Stdin, Stdout and Stderr")
	}
	if len(cmd.Argv) == 0 || cmd.Argv[0] == "" {
		return nil, fmt.Errorf("spawn: start %s: no command: %w", cmd.ID, os.ErrInvalid)
	}
	path, err := lookup(cmd)
	if err != nil {
		return nil, fmt.Errorf("spawn: start %s: %s: %w", cmd.ID, cmd.Argv[0], err)
	}
	c.mu.Lock()
	defer c.mu.Unlock() // over the start, so that KillAll meets its process
	if c.refuses || c.kills > 0 {
		return nil, fmt.Errorf("%w: %s is being killed", ErrClosed, c.limits.Name)
	}
	child, err := os.StartProcess(path, cmd.Argv, &os.ProcAttr{
		Dir: cmd.Dir, Env: cmd.Env, Files: []*os.File{cmd.Stdin, cmd.Stdout, cmd.Stderr}, Sys: ownGroup(),
	})
	if err != nil {
		return nil, fmt.Errorf("spawn: start %s: %w", cmd.ID, err)
	}
	p := &Process{id: cmd.ID, in: c, child: child, done: make(chan struct{})}
	c.live[p] = struct{}{}
	go p.wait() // ends with the process
	return p, nil
}

func lookup(cmd Command) (string, error) {
	if strings.ContainsRune(cmd.Argv[0], filepath.Separator) {
		return cmd.Argv[0], nil
	}
	for _, dir := range filepath.SplitList(pathOf(cmd.Env)) {
		if path, err := exec.LookPath(filepath.Join(dir, cmd.Argv[0])); err == nil {
			return path, nil
		}
	}
	return "", os.ErrNotExist
}

// Refuse keeps new commands out for good: they fail with ErrClosed.
func (c *Confinement) Refuse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuses = true
}

// KillAll kills what was started here, group by group, until none is left or ctx ends. What left its group is not found on this system.
func (c *Confinement) KillAll(ctx context.Context) error {
	c.mu.Lock()
	c.kills++
	live := make([]*Process, 0, len(c.live))
	for p := range c.live {
		live = append(live, p)
	}
	c.mu.Unlock()
	var errs []error
	for _, p := range live {
		if _, err := p.Kill(ctx, 0); err != nil {
			errs = append(errs, err)
		}
	}
	c.mu.Lock()
	c.kills--
	c.mu.Unlock()
	return errors.Join(errs...)
}

// Close does nothing here.
func (c *Confinement) Close() {}

// Process is a started process. It is safe for concurrent use.
type Process struct {
	id     string
	in     *Confinement
	child  *os.Process
	done   chan struct{}
	status syscall.WaitStatus // written before done is closed
}

func (p *Process) wait() {
	if state, err := p.child.Wait(); err == nil {
		p.status, _ = state.Sys().(syscall.WaitStatus)
	}
	p.in.mu.Lock()
	delete(p.in.live, p)
	p.in.mu.Unlock()
	close(p.done)
}

// PID returns the number of the process, which means nothing after Done.
func (p *Process) PID() int { return p.child.Pid }

// Done is closed once the process was reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Status returns how it ended, once Done is closed.
func (p *Process) Status() (status syscall.WaitStatus) {
	select {
	case <-p.done:
		return p.status
	default:
		return status
	}
}

// Signal sends sig to the process and its group; false when it has ended already.
func (p *Process) Signal(sig syscall.Signal) (bool, error) {
	err := p.child.Signal(sig) // os.Process does not signal a number that was waited for
	if errors.Is(err, os.ErrProcessDone) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("spawn: signal %s: %w", p.id, err)
	}
	signalGroup(p.child.Pid, sig)
	return true, nil
}

// Kill ends the process and its group: SIGTERM, grace, SIGKILL; with no grace SIGKILL at once. killed is true when the process was alive
// when Kill began. An error means that it may live.
func (p *Process) Kill(ctx context.Context, grace time.Duration) (killed bool, err error) {
	if grace > 0 {
		if killed, _ = p.Signal(syscall.SIGTERM); killed {
			select {
			case <-p.done:
			case <-ctx.Done():
			case <-p.in.s.clk.After(grace):
			}
		}
	}
	alive, err := p.Signal(syscall.SIGKILL)
	if err != nil {
		return killed || alive, err
	}
	select {
	case <-p.done:
		return killed || alive, nil
	case <-ctx.Done():
		return killed || alive, fmt.Errorf("spawn: kill %s: it may live: %w", p.id, ctx.Err())
	}
}
