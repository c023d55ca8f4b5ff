// Package probe shares one bounded, cached health check among all who ask.
//
// It exists because of what a health check does during the very outage it is there to detect. The dependency hangs, so each caller's check
// hangs with it, and the next caller starts another one: the check adds a stuck call per caller to a system that is already in trouble, and
// most of the time limits around it only hide the pile. Or one impatient caller's timeout is kept as the health of the dependency.
//
// A [Probe] has at most one check outstanding, ever. Who asks while it runs joins it, which is right for a measurement: unlike a lookup, a
// result that began a moment ago is as good as one that begins now. The result, good or bad, is kept for a while. No caller's context and no
// caller's values reach the check; they only end that caller's own wait. What a [Probe] reports is damped: it goes [Down] after several
// failures in a row and [Up] after enough successes, and before it knows it says [Unknown], which is never [Down].
//
// A [Group] asks several probes at once and answers over HTTP.
package probe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"
	"golang.org/x/sync/singleflight"
)

var (
	// ErrBudget is in the Err of a result whose check had not returned when its budget was over.
	ErrBudget = errors.New("probe: check exceeded its budget")
	// ErrClosed is returned by Get after Close.
	ErrClosed = errors.New("probe: closed")
	// ErrGoexit is the Err of a result whose check called runtime.Goexit.
	ErrGoexit = errors.New("probe: check exited its goroutine")
)

// PanicError is the Err of a result whose check panicked.
type PanicError struct {
	Value any    // what it panicked with
	Stack []byte // where
}

// Error gives the value, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("probe: check panicked: %v", e.Value) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Config holds the optional settings of a Probe. Negative values of Budget, Rise and Fall are misuse.
type Config struct {
	// Budget bounds one measurement; 0 means 5 s.
	Budget time.Duration
	// TTL is how long a good result is kept, counted from the end of its measurement; 0 means 10 s, negative not at all.
	TTL time.Duration
	// FailureTTL is TTL for a bad result; 0 means TTL, negative not at all.
	FailureTTL time.Duration
	// Rise is how many good results in a row make the state Up; 0 means 1.
	Rise int
	// Fall is how many bad results in a row make the state Down; 0 means 3.
	Fall int
	// Clock is the time for all of these; nil is the real one.
	Clock clock.Clock
	// Logger is told when the state changes, and of checks that ignore the end of their budget; nil is silent.
	Logger *zap.Logger
}

func (c Config) withDefaults() Config {
	if c.Budget < 0 || c.Rise < 0 || c.Fall < 0 {
		panic("probe: negative Config.Budget, Rise or Fall")
	}
	orDefault(&c.Budget, 5*time.Second)
	orDefault(&c.TTL, 10*time.Second)
	orDefault(&c.FailureTTL, c.TTL)
	orDefault(&c.Fall, 3) // Rise needs none: after a failure the streak is below 0, after a success it is at least 1
	if c.Clock == nil {
		c.Clock = clock.New()
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	return c
}

func orDefault[N int | time.Duration](n *N, def N) {
	if *n == 0 {
		*n = def
	}
}

// Probe measures with one check at a time. Make it with New. It is safe for concurrent use. It has no goroutine unless a check is running.
type Probe[T any] struct {
	check      func(context.Context) (T, error)
	cfg        Config
	overBudget error
	base       context.Context // parent of every check; ends with Close
	cancel     context.CancelFunc

	flight singleflight.Group
	last   atomic.Pointer[kept[T]]
	slot   chan struct{} // holds a token while a check is outstanding
	work   sync.WaitGroup

	cached, joined atomic.Uint64

	mu     sync.Mutex // guards the fields below, and writes of last
	closed bool
	stats  Stats
	streak int // results in a row, positive for good ones, negative for bad ones
}

// kept is a result and how long it is believed.
type kept[T any] struct {
	Result[T]
	ttl time.Duration
}

// New returns a Probe that has not measured yet. It panics if check is nil.
//
// The check has to return when its context ends. One that does not keeps its goroutine, and until it returns no other check is started.
func New[T any](check func(context.Context) (T, error), cfg Config) *Probe[T] {
	if check == nil {
		panic("probe: New with a nil check")
	}
	p := &Probe[T]{check: check, cfg: cfg.withDefaults(), slot: make(chan struct{}, 1)}
	p.overBudget = fmt.Errorf("%w of %s", ErrBudget, p.cfg.Budget)
	p.base, p.cancel = context.WithCancel(context.Background())
	p.last.Store(&kept[T]{ttl: -1})
	return p
}

// Get returns the result that is kept, or waits for the measurement that is being made, or makes one. How the check fared is the Err of
// the result. The error of Get is ctx's when it ends first, or ErrClosed; then the result is the last one, as of Peek.
//
// It waits no longer than one Budget. If ctx has ended already, only a kept result is returned, and nothing is started.
func (p *Probe[T]) Get(ctx context.Context) (Result[T], error) {
	if last := p.last.Load(); p.fresh(last) {
		p.cached.Add(1)
		return last.Result, nil
	}
	if err := ctx.Err(); err != nil {
		return p.Peek(), err
	}
	leads := false
	done := p.flight.DoChan("", func() (any, error) {
		leads = true
		return p.measure()
	})
	select {
	case res := <-done:
		if res.Err == nil && !leads {
			p.joined.Add(1)
		}
		return res.Val.(Result[T]), res.Err
	case <-ctx.Done():
	}
	select {
	case res := <-done: // what is there is not thrown away because ctx ended too
		return res.Val.(Result[T]), res.Err
	default:
		return p.Peek(), ctx.Err()
	}
}

// fresh says whether k is believed now. A result from the future, after the clock was set back, is not.
func (p *Probe[T]) fresh(k *kept[T]) bool {
	age := p.cfg.Clock.Since(k.At)
	return age >= 0 && age < k.ttl
}

// Status is Get without the value, for Group.
func (p *Probe[T]) Status(ctx context.Context) (Status, error) {
	r, err := p.Get(ctx)
	return r.Status, err
}

// Peek returns the last result, however old, and starts nothing. Before the first one it is the zero Result.
func (p *Probe[T]) Peek() Result[T] { return p.last.Load().Result }

// Stats returns a snapshot of the counters.
func (p *Probe[T]) Stats() Stats {
	p.mu.Lock()
	s := p.stats
	p.mu.Unlock()
	s.Cached, s.Joined = p.cached.Load(), p.joined.Load()
	return s
}

// Close answers those who wait with ErrClosed, cancels the check and waits until it has returned. It may be called more than once.
func (p *Probe[T]) Close() {
	p.mu.Lock()
	p.closed = true
	p.last.Store(&kept[T]{Result: p.last.Load().Result, ttl: -1})
	p.mu.Unlock()
	p.cancel()
	p.work.Wait()
}
