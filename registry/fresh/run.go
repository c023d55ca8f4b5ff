package fresh

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"go.uber.org/zap"
)

// run is one call of the work. It is promised, then started, then answered; the work may return before or after that.
// Coalescer.mu guards it, except for the last group once done is closed.
type run[K comparable, T any] struct {
	made       time.Time // when its first waiter came
	due        time.Time // started: when its waiters are answered ErrBudget; promised: the same, set while wedged
	waiters    int
	everything int       // waiters that asked for everything
	wanted     map[K]int // waiters by key, duplicates counted

	ctx      context.Context // from its start on
	cancel   context.CancelCauseFunc
	keys     []K
	deserted bool // cancelled because nobody waited

	answered bool
	done     chan struct{} // closed when answered
	val      T
	err      error
	panicked *PanicError
}

// join adds a waiter to the promised run and starts it if nothing stands in its way; nil when closed.
func (c *Coalescer[K, T]) join(keys []K) *run[K, T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.base.Err() != nil {
		return nil
	}
	if c.next != nil {
		c.next.add(keys)
		return c.next
	}
	now := c.clock.Now()
	r := &run[K, T]{made: now, done: make(chan struct{})}
	if c.wedged {
		r.due = now.Add(c.budget)
	}
	r.add(keys)
	c.next = r
	c.advanceLocked(now)
	return r
}

func (r *run[K, T]) add(keys []K) {
	r.waiters++
	if len(keys) == 0 {
		r.everything++
		return
	}
	if r.wanted == nil {
		r.wanted = make(map[K]int, len(keys))
	}
	for _, k := range keys {
		r.wanted[k]++
	}
}

func (r *run[K, T]) remove(keys []K) {
	r.waiters--
	if len(keys) == 0 {
		r.everything--
	}
	for _, k := range keys {
		if r.wanted[k]--; r.wanted[k] == 0 {
			delete(r.wanted, k)
		}
	}
}

// leave takes a waiter back. It reports whether the run was answered first: an answer that is there wins.
func (c *Coalescer[K, T]) leave(r *run[K, T], keys []K) (answered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.answered {
		return true
	}
	r.remove(keys)
	switch {
	case r.waiters > 0:
	case r == c.next:
		c.next = nil
		c.stats.NeverStarted++
		c.armLocked()
	default:
		r.deserted = true
		c.stats.Cancelled++
		r.cancel(context.Canceled)
	}
	return false
}

// advanceLocked starts the promised run if the slot is free and the pace allows it, and sets the timer for what is due next.
func (c *Coalescer[K, T]) advanceLocked(now time.Time) {
	if c.next != nil && c.running == nil && c.base.Err() == nil && !now.Before(c.readyLocked()) {
		c.startLocked(now)
	}
	c.armLocked()
}

// readyLocked returns the earliest moment at which the next run may start.
func (c *Coalescer[K, T]) readyLocked() time.Time {
	if c.stats.Runs == 0 {
		return time.Time{}
	}
	return c.lastStart.Add(c.pace)
}

// startLocked makes the promised run the running one. From here on nobody joins it, so every waiter came before its work
// begins, and those that have left are no longer in the union.
func (c *Coalescer[K, T]) startLocked(now time.Time) {
	r := c.next
	c.running, c.next = r, nil
	c.lastStart = now
	c.stats.Runs++
	// A promise that waited behind a wedged run has less than a budget left: nobody waits longer than two.
	r.due = earlier(now.Add(c.budget), r.made.Add(c.budget).Add(c.budget).Add(c.pace))
	if r.everything == 0 {
		r.keys = r.union()
	}
	r.ctx, r.cancel = context.WithCancelCause(c.base)
	c.works.Add(1)
	go c.execute(r) // ends when the work returns; Close waits for it
}

// union returns the keys wanted, each once.
func (r *run[K, T]) union() []K {
	keys := make([]K, 0, len(r.wanted))
	for k := range r.wanted {
		keys = append(keys, k)
	}
	return keys
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// execute calls the work and settles the run however the work ends.
func (c *Coalescer[K, T]) execute(r *run[K, T]) {
	defer c.works.Done()
	var val T
	var err error
	returned := false
	defer func() {
		var panicked *PanicError
		if !returned {
			panicked = &PanicError{Value: recover(), Stack: debug.Stack()}
			if panicked.Value == nil { // a panic with nil arrives as a *runtime.PanicNilError
				panicked.Value = ErrGoexit
			}
		}
		c.settle(r, val, err, panicked)
	}()
	val, err = c.work(r.ctx, r.keys)
	returned = true
}

// settle answers r, frees the slot and lets the promised run follow.
func (c *Coalescer[K, T]) settle(r *run[K, T], val T, err error, panicked *PanicError) {
	c.mu.Lock()
	c.running, c.wedged = nil, false
	heard := !r.answered && !r.deserted
	if heard {
		r.val, r.err, r.panicked = val, err, panicked
		if err != nil || panicked != nil {
			c.stats.Failed++
		}
	}
	c.answerLocked(r)
	r.cancel(context.Canceled)
	if c.next != nil {
		c.next.due = time.Time{}
		c.advanceLocked(c.clock.Now())
	} else {
		c.armLocked()
	}
	c.mu.Unlock()
	if panicked != nil && !heard {
		c.log.Error("fresh: work panicked with no caller left to tell",
			zap.Any("panic", panicked.Value), zap.ByteString("stack", panicked.Stack))
	}
}

func (c *Coalescer[K, T]) answerLocked(r *run[K, T]) {
	if !r.answered {
		r.answered = true
		close(r.done)
	}
}

// wake does what has become due: it ends budgets and starts a promise that waited for the pace. It looks at the state
// rather than at why it was called, so a timer that fires late or for nothing does no harm.
func (c *Coalescer[K, T]) wake() {
	c.mu.Lock()
	now := c.clock.Now()
	over := !c.closed && c.running != nil && !c.wedged && !now.Before(c.running.due)
	if over {
		c.expireLocked(now)
	}
	if c.wedged && c.next != nil && !now.Before(c.next.due) {
		c.next.err = c.budgetError()
		c.answerLocked(c.next)
		c.next = nil
		c.stats.NeverStarted++
	}
	if !c.closed {
		c.advanceLocked(now)
	}
	c.mu.Unlock()
	if over {
		c.log.Warn("fresh: run exceeded its budget; no other starts until it returns", zap.Duration("budget", c.budget))
	}
}

// expireLocked answers the callers of the running run. The slot stays taken, and the promised run gets one more budget
// to wait for it.
func (c *Coalescer[K, T]) expireLocked(now time.Time) {
	r := c.running
	c.wedged = true
	if !r.deserted {
		r.err = c.budgetError()
		c.stats.Failed++
	}
	c.answerLocked(r)
	r.cancel(ErrBudget)
	if c.next != nil {
		c.next.due = now.Add(c.budget)
	}
}

func (c *Coalescer[K, T]) budgetError() error {
	return fmt.Errorf("%w of %v", ErrBudget, c.budget)
}

// armLocked sets the timer to the earliest thing that wake would do. It does so each time anew: a Mock that fires while
// it is reset forgets the reset, and then it is wake that repairs it.
func (c *Coalescer[K, T]) armLocked() {
	var at time.Time
	switch {
	case c.base.Err() != nil: // shutdown is about to answer everybody
		c.timer.Stop()
		return
	case c.running != nil && !c.wedged:
		at = c.running.due
	case c.next == nil:
		c.timer.Stop()
		return
	case c.wedged:
		at = c.next.due
	default:
		at = c.readyLocked()
	}
	c.timer.Reset(c.clock.Until(at))
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
	c.next = nil
	c.timer.Stop()
	c.cancel(ErrClosed)
	c.unhook()
}
