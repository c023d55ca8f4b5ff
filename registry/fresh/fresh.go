// Package fresh lets many callers share the answer to a costly question, and gives none of them an answer older than its question.
//
// The fault it prevents: a caller that finds a run in progress and joins it is answered with what was true before
// it asked. An object created in between is then "not found", although it lives. Deduplicating callers by key, as
// singleflight does, has this fault by design: it is right for measurements and wrong for lookups.
//
// A [Coalescer] therefore makes latecomers share the next run. Whoever asks while a run is in progress is promised another,
// and so is everybody who asks until that one begins, which is when the first has returned, whatever it returned:
//
//	run 1    |=========|
//	run 2              |=========|
//	caller A ^ starts run 1, is answered by it
//	caller B    ^ too late for run 1: run 2 is promised
//	caller C       ^ shares run 2
//
// However many callers there are, the work is never called twice at a time. Each of them waits for what is left of one run and for
// the whole of another, so for no more than two budgets, and [Config].MinInterval if that is set.
//
// What it does not do: it keeps no result. A call after a run has returned starts another.
package fresh

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"
)

var (
	// ErrClosed is what Do returns once Close was called or Config.Base has ended, and what ends the waits of that moment.
	ErrClosed = errors.New("fresh: closed")
	// ErrBudget is what the callers of a run get when Config.Budget is over before the work has answered. The work may still be at it.
	ErrBudget = errors.New("fresh: run exceeded its budget")
	// ErrGoexit is the Value of the PanicError that callers get when the work ended its goroutine.
	ErrGoexit = errors.New("fresh: work called runtime.Goexit")
)

const (
	defaultBudget = 15 * time.Second
	forever       = 1 << 60 * time.Nanosecond // 36 years: what a longer duration is cut to, so that sums of a few do not overflow
)

// Config sets the times of a Coalescer, and what its runs inherit. The zero Config is usable.
type Config struct {
	// Base is the parent of the context of every run; nil means context.Background. Its values are what the work
	// sees, never those of a caller. When it ends the coalescer closes, without the wait that Close adds.
	Base context.Context
	// Budget bounds one run; 0 means 15 s. At its end the run's context is cancelled with ErrBudget as its cause and
	// its callers are answered ErrBudget, even if the work goes on. New panics if it is negative.
	Budget time.Duration
	// MinInterval is the least time between the starts of two runs; 0 means none. New panics if it is negative.
	MinInterval time.Duration
	// Clock measures Budget and MinInterval; nil means the real one. Contexts carry no deadline, only a cancellation,
	// so that a clock of a test does not reach the sockets of the work.
	Clock clock.Clock
	// Logger is told of a run that exceeds its budget and of a panic that no caller was left to receive; nil is silent.
	Logger *zap.Logger
}

// Coalescer puts one question for many callers, as often as it takes to give each a fresh answer and not more often. It is made by
// New, and the zero Coalescer is not usable. It is safe for concurrent use, and has no goroutine while no run is in progress.
type Coalescer[K comparable, T any] struct {
	work   func(context.Context, []K) (T, error)
	budget time.Duration
	pace   time.Duration // Config.MinInterval
	clock  clock.Clock
	made   time.Time // moments are kept as what had passed since then
	log    *zap.Logger

	base   context.Context // Config.Base
	values context.Context // of every run: base without its end, which shutdown passes on
	unhook func() bool     // stops listening for the end of base
	begin  func()          // execute, made once so that starting it allocates nothing

	mu      sync.Mutex // guards the fields below; neither the work nor the logger is called under it
	running *run[K, T] // started and not returned
	next    *run[K, T] // promised
	wedged  bool       // running is over its budget
	closed  bool
	ready   time.Duration // when the next run may start, if it is not the first and there is a pace
	timer   *clock.Timer  // calls wake; nil until first needed
	armed   time.Duration // when timer fires at the latest; 0 while it is not set
	stats   Stats         // the counters only
	idle    sync.Cond     // of mu; tells Close that running is nil
}

// New makes a Coalescer whose runs are calls of work. In keys the work finds the keys of all calls of Do that it is to answer, each
// once and in no particular order; keys is nil if at least one of those calls named none. At the end of ctx the work should
// return; if it does not, its callers are answered all the same, but the next run cannot start before it has. It must not call
// Close.
//
// New panics if work is nil or a duration of cfg is negative.
func New[K comparable, T any](work func(ctx context.Context, keys []K) (T, error), cfg Config) *Coalescer[K, T] {
	if work == nil {
		panic("fresh: nil work")
	}
	if cfg.Budget < 0 || cfg.MinInterval < 0 {
		panic(fmt.Sprintf("fresh: negative Budget %v or MinInterval %v", cfg.Budget, cfg.MinInterval))
	}
	c := &Coalescer[K, T]{work: work, budget: cfg.Budget, pace: cfg.MinInterval, clock: cfg.Clock, log: cfg.Logger}
	if c.budget == 0 {
		c.budget = defaultBudget
	}
	c.budget, c.pace = min(c.budget, forever), min(c.pace, forever)
	if c.clock == nil {
		c.clock = clock.New()
	}
	c.made = c.clock.Now()
	if c.log == nil {
		c.log = zap.NewNop()
	}
	if c.base = cfg.Base; c.base == nil {
		c.base = context.Background()
	}
	c.values = context.WithoutCancel(c.base)
	c.begin = c.execute
	c.idle.L = &c.mu
	c.mu.Lock() // shutdown may come at once, and read what is being set
	defer c.mu.Unlock()
	c.unhook = context.AfterFunc(c.base, c.shutdown)
	return c
}

// Do waits for a run of the work that starts later than this call, and returns what the work returned. Others may be given the same
// T, so do not change it. Name the keys that are wanted, or none for all there are, and leave the slice alone until Do returns.
//
// ctx bounds the wait of this caller only: at its end Do returns its error, and if nobody else waits for the run, a
// promised one is dropped and a running one is cancelled. Other errors are ErrClosed, ErrBudget and those of the work.
// If the work panics or calls runtime.Goexit, Do panics with a *PanicError.
func (c *Coalescer[K, T]) Do(ctx context.Context, keys ...K) (t T, err error) {
	if err := ctx.Err(); err != nil {
		return t, err
	}
	r, done := c.join(keys)
	if r == nil {
		return t, ErrClosed
	}
	select {
	case <-done:
	case <-ctx.Done():
		if !c.leave(r, keys) {
			return t, ctx.Err()
		}
	}
	if r.panicked != nil {
		panic(r.panicked)
	}
	return r.val, r.err
}

func (c *Coalescer[K, T]) now() time.Duration { return c.clock.Since(c.made) }

// Stats returns what has been counted since New, and what goes on now, both as of one moment.
func (c *Coalescer[K, T]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Running, s.Promised, s.Wedged = c.running != nil, c.next != nil, c.wedged
	if c.running != nil && !c.running.answered {
		s.Waiters = c.running.waiters
	}
	if c.next != nil {
		s.Waiters += c.next.waiters
	}
	return s
}

// Close ends all waits with ErrClosed and the run, if there is one, through its context. It returns when the work has, however long
// that takes. A second call is harmless and waits likewise.
func (c *Coalescer[K, T]) Close() {
	c.shutdown()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.running != nil {
		c.idle.Wait()
	}
}

// shutdown answers everybody and starts nothing any more.
func (c *Coalescer[K, T]) shutdown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	for _, r := range []*run[K, T]{c.running, c.next} {
		if r != nil && !r.answered {
			r.err = ErrClosed
			c.answerLocked(r)
		}
	}
	if c.running != nil {
		c.running.ctx.endLocked(ErrClosed)
	}
	c.next = nil
	if c.timer != nil {
		c.timer.Stop()
	}
	c.unhook()
}

// Stats has the counters of a Coalescer, and what it is at.
type Stats struct {
	Runs         uint64 // started
	Failed       uint64 // returned an error, panicked or exceeded the budget while somebody waited
	Cancelled    uint64 // cancelled because nobody waited any more
	NeverStarted uint64 // promises dropped: their waiters left, or the run before them was wedged for too long
	Waiters      int    // callers waiting now
	Running      bool   // a run has started and not returned
	Promised     bool   // another will follow
	Wedged       bool   // the run is over its budget and has not returned
}

// PanicError is what Do panics with when the work panicked.
type PanicError struct {
	Value any    // what the work panicked with, or ErrGoexit
	Stack []byte // of the work
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("fresh: work panicked: %v\n\n%s", e.Value, e.Stack)
}

// Unwrap returns Value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
