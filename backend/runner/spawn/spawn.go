// Package spawn starts processes under confinement, waits for them, and ends whole trees of them.
package spawn

import (
	"context"
	"os"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// Config holds the optional settings of a Spawner.
type Config struct {
	// Reap makes this process adopt and reap the orphans of what it starts (subreaper, or PID 1). Only for a process that
	// starts children through this Spawner alone, since it waits for every child.
	Reap   bool
	Logger *zap.Logger
}

// Spawner starts processes and is the only one that waits for them. It is safe for concurrent use.
type Spawner struct{}

// New returns a Spawner.
func New(cfg Config) (*Spawner, error) { return nil, nil }

// Abilities says what this machine allows.
func (s *Spawner) Abilities() Abilities { return Abilities{} }

// Confine prepares the confinement of one sandbox.
func (s *Spawner) Confine(l Limits) (*Confinement, error) { return nil, nil }

// Close ends the goroutines of the Spawner; the processes live on.
func (s *Spawner) Close() {}

// Abilities says what a Spawner can enforce on this machine.
type Abilities struct {
	UIDs        bool // a uid of its own for each sandbox
	NoNewPrivs  bool
	LandlockABI int // 0: none
	Subreaper   bool
}

// Sentences returns what can and cannot be enforced, one plain sentence each, for a log or a health answer.
func (a Abilities) Sentences() []string { return nil }

// Limits describes the confinement of one sandbox.
type Limits struct {
	Name      string   // of the sandbox: marks its processes
	Home      string   // read-write; a private tmp lies inside it
	UID, GID  uint32   // 0: the caller's own
	ReadOnly  []string // further read-only paths beside the system's
	MemoryMB  int64    // address space of one process; 0: no limit
	PIDs      int64    // processes of the uid; 0: no limit
	OpenFiles uint64   // 0: inherited
}

// Confinement is the prepared confinement of one sandbox and the handle on all of its processes. It is safe for concurrent use.
type Confinement struct{}

// Start starts one command inside.
func (c *Confinement) Start(cmd Command) (*Process, error) { return nil, nil }

// KillAll kills every process inside, whatever group or session it is in, until none is left or ctx ends. An error means that some may live.
func (c *Confinement) KillAll(ctx context.Context) error { return nil }

// Close gives up what Confine prepared; it does not kill.
func (c *Confinement) Close() {}

// Command is what to start. Argv[0] is looked up in Env's PATH unless it contains a slash.
type Command struct {
	ID                    string // of the process: marks its descendants
	Argv, Env             []string
	Dir                   string
	Stdin, Stdout, Stderr *os.File // each set: none is opened here
}

// Process is a started process. It is safe for concurrent use.
type Process struct{}

// PID returns the number of the process, which means nothing after Done.
func (p *Process) PID() int { return 0 }

// Done is closed once the process was reaped.
func (p *Process) Done() <-chan struct{} { return nil }

// Status returns how it ended, once Done is closed.
func (p *Process) Status() syscall.WaitStatus { return 0 }

// Signal sends sig to the process group of the process; false when the process was reaped already, and then nothing is signalled.
func (p *Process) Signal(sig syscall.Signal) (bool, error) { return false, nil }

// Kill ends the process and all of its descendants: SIGTERM, grace, SIGKILL; with no grace SIGKILL at once. It returns once
// all are gone: killed is true when the process was alive when Kill began. An error means that some may live.
func (p *Process) Kill(ctx context.Context, grace time.Duration) (killed bool, err error) { return false, nil }
