// Package probe answers the question whether a dependency is well, for any number of callers and with one call to it at a time.
//
// The fault it prevents: a dependency hangs, and the health checks make it worse. Each request to the health endpoint starts a check that
// gets stuck, and these pile up on the side of the caller as on the other. A time limit around them ends the waiting, but not the calls. And
// where a check runs with the context of a request, a client that hangs up early leaves "down" behind for everybody.
//
// A [Probe] never starts a check before the last one has returned. Whoever asks meanwhile waits for that one, no longer than one budget,
// and gets its result: for the health of something, unlike for its existence, a measurement that began a moment ago will do. Results are kept for a while, failures too.
// The check sees neither the context nor the values of any caller; the end of a caller's context ends the wait of that caller. One failure
// does not make a dependency [Down], only several in a row do, and likewise for [Up]; until it is one of them it is [Unknown], and nothing
// is decided by that.
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
	// ErrBudget is what Result.Err wraps when Config.Budget was over before the check returned.
	ErrBudget = errors.New("probe: check exceeded its budget")
	// ErrClosed is the error of Get once the probe is closed.
	ErrClosed = errors.New("probe: closed")
	// ErrGoexit is Result.Err when the check called runtime.Goexit, as t.FailNow does.
	ErrGoexit = errors.New("probe: check exited its goroutine")
)

// PanicError is Result.Err, as a pointer, when the check panicked; the panic goes no further.
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

// Config says how long a check may take, how long its result is good for, and how many results make a state. The zero Config is ready
// to use. New panics if Budget, Rise or Fall is negative.
type Config struct {
	// Budget is how long one check may take, and so the longest wait of a caller; 0 means 5 s.
	Budget time.Duration
	// TTL is how long after its check has ended a good result is given to callers; 0 means 10 s, negative only to those who waited for it.
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

// Probe knows, or finds out, how one dependency is. It is made by New, and the zero Probe is not usable. It is safe for concurrent use. It
// measures only when it is asked, and has a goroutine only while it does.
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

// New makes a Probe of check, which is not called before somebody asks. It panics if check is nil.
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

// Get tells how the dependency is: from the result that is kept if that is still good, else from a check, for which it waits, and which it
// starts if none runs. How the check fared is the Err of the result. The error of Get is ctx's when it ends first, or ErrClosed; then the result is the last one, as of Peek.
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

// Status does the same as Get and leaves out the value: it is what makes a Probe fit for a [Group].
func (p *Probe[T]) Status(ctx context.Context) (Status, error) {
	r, err := p.Get(ctx)
	return r.Status, err
}

// Peek looks at the newest result without a wait or a check; it may be of any age, and is zero if there is none yet.
func (p *Probe[T]) Peek() Result[T] { return p.last.Load().Result }

// Stats returns what has been counted since New, and whether a check is outstanding.
func (p *Probe[T]) Stats() Stats {
	p.mu.Lock()
	s := p.stats
	p.mu.Unlock()
	s.Cached, s.Joined = p.cached.Load(), p.joined.Load()
	return s
}

// Close makes Get return ErrClosed to those who wait and to all who come later. It ends the context of a check that runs and returns when
// the check has, however long that takes. It may be called more than once, and must not be called by the check.
func (p *Probe[T]) Close() {
	p.mu.Lock()
	p.closed = true
	p.last.Store(&kept[T]{Result: p.last.Load().Result, ttl: -1})
	p.mu.Unlock()
	p.cancel()
	p.work.Wait()
}
