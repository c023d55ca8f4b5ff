// Package sweep keeps recurring passes from overlapping, and from deciding too much on too little.
//
// The faults it prevents: a timer fires during a pass that takes long, and two passes stop the same things; a pass that panics
// leaves its guard locked, and there is never another; something is stopped that was found idle but has been put to use since; and
// one list that comes back short costs everything that it left out.
//
// Four pieces, each of use alone:
//
//   - [Loop] starts passes by the clock and when told to, but no second one beside a first.
//   - [Judge] turns what is known about one object into a verdict and its reason. It is a pure function.
//   - [Plan] is the usual pass: it judges all objects, stops a few of those that are due, and mistrusts it if many seem gone.
//   - [Activity] tells how long an object has been idle; it is not idle while a request uses it.
//
// # What it leaves out
//
// It knows nothing of the objects, of what holds them, or of other processes: two replicas with a Loop each sweep twice.
// The hold under which a verdict is taken again belongs to Plan.Act, which the caller writes.
package sweep

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"
)

// ErrRunning is TryRun's answer when it may not start a pass, because one has not returned yet. During a pause, too, the error
// is ErrRunning to errors.Is; its text then says when the pause ends.
var ErrRunning = errors.New("sweep: a pass is running")

// ErrClosed is TryRun's answer after Close, and what Run ends with.
var ErrClosed = errors.New("sweep: closed")

// Config sets the times of a Loop, and whom it informs. With the zero Config it ticks every minute and says nothing.
type Config struct {
	Every  time.Duration // between two ticks; 0: 60 s
	Jitter float64       // each wait is longer or shorter by up to this fraction of Every, below 1; 0: none
	Budget time.Duration // after which a pass's context ends; 0: Every
	Clock  clock.Clock   // nil: the real one
	Logger *zap.Logger   // told of skipped ticks (the 1st, 2nd, 4th, 8th ... in a row) and of passes that fail; nil: nobody
}

// Loop calls its pass again and again, and never before the last call is over. It is made by New, and the zero Loop is not usable.
// It is safe for concurrent use. A pass is over when it has returned an error or nil, panicked, or called runtime.Goexit; when its
// time is up its context ends, but a pass that does not heed that still keeps all others from starting.
type Loop struct {
	pass    func(context.Context) error
	cfg     Config
	wake    chan struct{} // tells Run to look at nudged and paused again
	closing chan struct{} // closed by Close

	mu      sync.Mutex    // guards the fields below; nothing is called while it is held
	running *run          // the pass that has the guard; nil: none
	ticking chan struct{} // closed when Run returns; nil: Run was not called
	closed  bool
	nudged  bool
	paused  time.Time // until when
	skips   uint64    // in a row, since the last pass began
	stats   Stats     // without Running and Wedged
}

// run is one pass that has begun.
type run struct {
	ctx    context.Context // with the budget
	cancel context.CancelFunc
	start  time.Time
	done   chan struct{} // closed when the pass has returned and err is set
	err    error
}

// New makes a Loop that calls pass, but not before Run or TryRun is called. It panics if pass is nil, if Every or
// Budget is negative, or if Jitter is not within [0, 1).
func New(pass func(context.Context) error, cfg Config) *Loop {
	switch {
	case pass == nil:
		panic("sweep: nil pass")
	case cfg.Every < 0 || cfg.Budget < 0:
		panic(fmt.Sprintf("sweep: negative Every %v or Budget %v", cfg.Every, cfg.Budget))
	case !(cfg.Jitter >= 0 && cfg.Jitter < 1): // so that NaN is refused too
		panic(fmt.Sprintf("sweep: Jitter %v is not within [0, 1)", cfg.Jitter))
	}
	if cfg.Every == 0 {
		cfg.Every = time.Minute
	}
	if cfg.Budget == 0 {
		cfg.Budget = cfg.Every
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.New()
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	return &Loop{pass: pass, cfg: cfg, wake: make(chan struct{}, 1), closing: make(chan struct{})}
}

// Run starts a pass each period until ctx has ended, when it returns the cause of that, or until Close, when it returns ErrClosed;
// in both cases after the last pass has. The first period passes before the first pass, unless Nudge was called before. If a pass
// is still at work when the next is due, the next is left out and not made up for; nor are those that a stall or a jump of the
// clock has made late: they are one. Passes that Run starts have a context derived from ctx. It panics if Run is running already.
func (l *Loop) Run(ctx context.Context) error {
	if !l.enter() {
		return ErrClosed
	}
	defer l.leave()
	tick := l.cfg.Clock.Timer(l.period())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			l.wait()
			return context.Cause(ctx)
		case <-l.closing:
			l.wait()
			return ErrClosed
		case <-tick.C:
			tick.Reset(l.period())
			l.tick(ctx)
		case <-l.startNudged(ctx): // a pause has ended
		case <-l.wake:
		}
	}
}

// TryRun makes a pass for a caller who wants to know how it went, and returns its error. If it may not start one it returns ErrRunning or
// ErrClosed without waiting. When ctx ends TryRun returns, while the pass goes on; the pass sees the values of ctx and not its
// end. A refusal because a pass is at work does not allocate.
func (l *Loop) TryRun(ctx context.Context) error {
	if l.busy() {
		return ErrRunning
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	r, err := l.begin(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Nudge makes sure that a pass begins after this call, as soon as none is at work and there is no pause. Several calls before that
// pass want the same one, which may also be one that was due or that TryRun started. It returns at once; Run starts the pass, if
// it has been called or as soon as it is.
func (l *Loop) Nudge() {
	l.mu.Lock()
	l.nudged = true
	l.mu.Unlock()
	l.signal()
}

// Pause lets no pass begin before t. A later call replaces t, and the zero time ends a pause. A pass at work goes on. A pass that
// is due during a pause is left out, one that Nudge asked for is put off until the end of it.
func (l *Loop) Pause(t time.Time) {
	l.mu.Lock()
	l.paused = t
	l.mu.Unlock()
	l.signal()
}

// Close ends the context of a pass at work and returns when that pass and Run have returned, however long it takes them. No pass
// begins after it. It may be called twice, and must not be called by a pass.
func (l *Loop) Close() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.closing)
	}
	r, ticking := l.running, l.ticking
	l.mu.Unlock()
	if r != nil {
		r.cancel()
		<-r.done
	}
	if ticking != nil {
		<-ticking
	}
}

// Stats holds counters since New, and what a Loop is doing. The zero Stats is that of a Loop that was never run.
type Stats struct {
	Passes   uint64 // begun
	Skipped  uint64 // ticks that met a running pass
	Failed   uint64 // passes that returned an error
	Panicked uint64 // passes that panicked or called runtime.Goexit
	Running  bool
	Wedged   bool // the pass that runs has not returned though its context has ended

	LastStart, LastEnd time.Time // of a pass
	LastErr            error     // of the pass that ended last
}

// Stats returns the counters, taken at one moment.
func (l *Loop) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Running = l.running != nil
	s.Wedged = s.Running && l.running.ctx.Err() != nil
	return s
}

// period returns the wait until the next tick.
func (l *Loop) period() time.Duration {
	off := time.Duration(l.cfg.Jitter * (2*rand.Float64() - 1) * float64(l.cfg.Every))
	return l.cfg.Every + min(off, math.MaxInt64-l.cfg.Every) // of a longest wait the sum must not overflow into none at all
}
