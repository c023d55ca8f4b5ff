package spawn

import (
	"errors"
	"os"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"
)

// ErrClosed is what starting fails with while the sandbox is being killed, or after it was closed.
var ErrClosed = errors.New("spawn: the sandbox takes no commands any more")

// ErrThreads is what starting fails with when so many sandboxes are in use at once that this process cannot have a thread for another one.
var ErrThreads = errors.New("spawn: too many sandboxes have a thread")

// Config says whether a Spawner takes in orphans, and which clock and log it uses. The zero value is usable.
type Config struct {
	// Reap makes this process adopt and reap the orphans of what it starts (subreaper, or PID 1). Only for a process that starts
	// children through this Spawner alone, since it waits for every child. It also sets RLIMIT_CORE to 0, the hard limit too, so that
	// neither this process nor what it starts can dump core again, and makes this process undumpable, so that others of its user can
	// neither trace it nor read its memory and its environment.
	Reap   bool
	Clock  clock.Clock // measures the grace of a kill; nil: the real one
	Logger *zap.Logger // nil: silent
}

// Limits describes the confinement of one sandbox. The zero value of everything but Home is usable.
type Limits struct {
	Name      string   // of the sandbox: marks its processes
	Home      string   // read-write; a private tmp lies inside it
	UID, GID  uint32   // 0: the caller's own
	ReadOnly  []string // further read-only paths beside the system's
	Open      bool     // files and ports are for something else to confine, such as a container; ReadOnly means nothing then
	MemoryMB  int64    // address space of one process, in MiB; 0: no limit
	PIDs      int64    // processes and threads of the uid; 0: no limit
	OpenFiles uint64   // 0: inherited
}

// Command is what to start. Argv[0] is looked up in Env's PATH unless it contains a slash.
type Command struct {
	ID                    string // of the process: marks its descendants
	Argv, Env             []string
	Dir                   string
	Stdin, Stdout, Stderr *os.File // each set: none is opened here, and all stay the caller's to close
}
