package spawn

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// Spawner starts processes and is the only one that waits for them. It is safe for concurrent use.
type Spawner struct {
	reap     bool
	clk      clock.Clock
	log      *zap.Logger
	able     Abilities
	landlock *landlock
	marks    *marks
	cells    *cells
	patience time.Duration // for a child between fork and exec

	// starts is read-held from before a fork until its child is in procs, and write-held to decide that a child is nobody's. It is
	// taken before mu.
	starts sync.RWMutex

	mu    sync.Mutex       // guards the fields below
	procs map[int]*Process // started and not reaped yet, by pid

	rounds  atomic.Uint64 // counts looks for ended children, twice those in vain
	refused int           // of the reaper alone: attempts in vain to find no start under way
	wake    chan struct{} // capacity 1: look for ended children
	signals chan os.Signal
	stop    chan struct{}
	once    sync.Once
	reaper  sync.WaitGroup
}

// New returns a Spawner, having tried out what this machine allows. Its one goroutine ends with Close.
func New(cfg Config) (*Spawner, error) {
	s := &Spawner{
		patience: startPatience, cells: newCells(), reap: cfg.Reap, clk: cfg.Clock, log: cfg.Logger,
		procs: map[int]*Process{}, wake: make(chan struct{}, 1), signals: make(chan os.Signal, 1), stop: make(chan struct{}),
	}
	if s.clk == nil {
		s.clk = clock.New()
	}
	if s.log == nil {
		s.log = zap.NewNop()
	}
	var err error
	if s.landlock, err = newLandlock(); err != nil {
		return nil, fmt.Errorf("spawn: %w", err)
	}
	s.able = probe(s.landlock)
	if s.able.Marks {
		s.marks = newMarks()
	}
	if err := s.adopt(); err != nil {
		s.landlock.close()
		return nil, err
	}
	signal.Notify(s.signals, unix.SIGCHLD)
	s.reaper.Add(1)
	go s.reapLoop() // ended and waited for by Close
	return s, nil
}

// adopt makes this process the parent of the orphans of its children, and keeps it from their eyes.
func (s *Spawner) adopt() error {
	if !s.reap {
		return nil
	}
	if os.Getpid() != 1 {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("spawn: become subreaper: %w", err)
		}
	}
	s.able.Subreaper = true
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("spawn: hide from other processes: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil { // inherited by all that is started
		return fmt.Errorf("spawn: turn off core dumps: %w", err)
	}
	return nil
}

// Abilities says what this machine allows.
func (s *Spawner) Abilities() Abilities { return s.able }

// Close ends the goroutine of the Spawner and waits for it; the processes live on, and nobody waits for them any more. It may be called twice.
func (s *Spawner) Close() {
	s.once.Do(func() {
		signal.Stop(s.signals)
		close(s.stop)
		s.reaper.Wait()
		s.landlock.close()
	})
}
