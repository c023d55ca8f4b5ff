// Package sweep keeps recurring passes from overlapping, and from deciding too much on too little.
//
// The faults it prevents: a tick starts a pass while the last one still runs, and both stop the same things; a pass that
// panics leaves its guard locked, and no pass ever runs again; a pass stops something that became busy a moment ago; and on
// one bad list a pass removes everything there is.
//
// Four pieces, each of use alone:
//
//   - [Loop] runs one pass at a time, on a period, on demand, never two at once.
//   - [Judge] turns what is known about one object into a verdict and its reason. It is pure.
//   - [Plan] carries out one pass: judges all, paces stops, and refuses to act on too many absences.
//   - [Activity] tells for how long one object has been idle, with work in flight pinning it.
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
	"math/rand/v2"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"
)

// ErrRunning is returned by TryRun when a pass runs or is wedged; while passes are paused its error, which says until when,
// is ErrRunning to errors.Is.
var ErrRunning = errors.New("sweep: a pass is running")

// ErrClosed is returned by TryRun and Run after Close.
var ErrClosed = errors.New("sweep: closed")

// Config holds the optional settings of a Loop. The zero Config is ready to use.
type Config struct {
	Every  time.Duration // between two ticks; 0: 60 s
	Jitter float64       // each wait is longer or shorter by up to this fraction of Every, below 1; 0: none
	Budget time.Duration // after which a pass's context ends; 0: Every
	Clock  clock.Clock   // nil: the real one
	Logger *zap.Logger   // told of skipped ticks (the 1st, 2nd, 4th, 8th ... in a row) and of passes that fail; nil: nobody
}

// Loop runs one pass at a time. It is made by New and safe for concurrent use. Its guard is held until the pass has
// returned: a pass that fails, panics or calls runtime.Goexit frees it, one that ignores its ended context keeps it.
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

// New returns a Loop of pass, which starts nothing until Run or TryRun is called. It panics if pass is nil, if Every or
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

// Run ticks until ctx ends, then waits for the pass that runs, and returns the cause of ctx; or until Close, and returns
// ErrClosed. The first tick comes after one period: call Nudge before Run for a pass at once. A tick that meets a running
// pass is skipped, never queued; a tick that comes late, after a stall or a clock jump, is one tick. Passes that Run starts
// have a context derived from ctx. It panics if Run is running already.
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

// TryRun runs a pass now and returns its error, or returns ErrRunning or ErrClosed at once. The end of ctx ends the wait,
// not the pass, which has the values of ctx. A refusal does not allocate.
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

// Nudge asks for one pass that begins after this call, as soon as no other runs and no pause holds it. Asking twice is
// asking once, and any pass that begins answers it. It is Run that starts the pass, now or when it is called.
func (l *Loop) Nudge() {
	l.mu.Lock()
	l.nudged = true
	l.mu.Unlock()
	l.signal()
}

// Pause holds all passes until t; the last call counts, so the zero time ends a pause. A pass that runs goes on. Ticks that
// fall into a pause are lost, a Nudge is kept until its end.
func (l *Loop) Pause(t time.Time) {
	l.mu.Lock()
	l.paused = t
	l.mu.Unlock()
	l.signal()
}

// Close cancels the pass that runs, waits for it, and for Run to return. No pass begins after it. It may be called twice,
// and must not be called by a pass.
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

// Stats holds counters since New, and what a Loop is doing.
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
	return l.cfg.Every + time.Duration(l.cfg.Jitter*(2*rand.Float64()-1)*float64(l.cfg.Every))
}
