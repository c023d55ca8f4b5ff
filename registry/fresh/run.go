package fresh

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"go.uber.org/zap"
)

// run is one call of the work. It is promised, then started, then answered; the work may return before or after that.
// Coalescer.mu guards it, except for the last group once done is closed.
type run[K comparable, T any] struct {
	made       time.Time // when its first waiter came
	due        time.Time // when its waiters are answered ErrBudget; while promised, only if the running one is wedged
	waiters    int
	everything int       // waiters that asked for everything
	wanted     map[K]int // waiters by key, duplicates counted

	ctx      context.Context // from its start on
	cancel   context.CancelCauseFunc
	deserted bool // cancelled because nobody waited

	answered bool
	done     chan struct{} // closed when answered
	val      T
	err      error
	panicked *PanicError
}

// join starts a run for the caller, or adds it to the promised one if something stands in the way of a start; nil when closed.
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
	if c.running == nil && !now.Before(c.readyLocked()) {
		r.waiters = 1
		c.startLocked(r, distinct(keys), now)
	} else {
		r.add(keys)
		r.due = now.Add(c.budget)
		c.next = r
	}
	c.armLocked(now)
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
	if len(keys) == 0 {
		r.everything--
	}
	for _, k := range keys {
		if r.wanted[k]--; r.wanted[k] == 0 {
			delete(r.wanted, k)
		}
	}
}

// union returns the keys that the waiters want, each once; nil if one of them wants everything.
func (r *run[K, T]) union() []K {
	if r.everything > 0 {
		return nil
	}
	return slices.Collect(maps.Keys(r.wanted))
}

// distinct is union for the one caller of a run that starts at once.
func distinct[K comparable](keys []K) []K {
	if len(keys) < 2 {
		return slices.Clone(keys)
	}
	r := run[K, struct{}]{}
	r.add(keys)
	return r.union()
}

// leave takes a waiter back. It reports whether the run was answered first: an answer that is there wins.
func (c *Coalescer[K, T]) leave(r *run[K, T], keys []K) (answered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.answered {
		return true
	}
	r.waiters--
	switch {
	case r == c.next && r.waiters > 0:
		r.remove(keys)
	case r == c.next:
		c.next = nil
		c.stats.NeverStarted++
	case r.waiters == 0:
		r.deserted = true
		c.stats.Cancelled++
		r.cancel(context.Canceled)
	}
	return false
}

// advanceLocked starts the promised run if the slot is free and the pace allows it, and sees to it that wake is called
// when the next thing is due.
func (c *Coalescer[K, T]) advanceLocked(now time.Time) {
	if r := c.next; r != nil && c.running == nil && c.base.Err() == nil && !now.Before(c.readyLocked()) {
		c.next = nil
		c.startLocked(r, r.union(), now)
	}
	c.armLocked(now)
}

// readyLocked returns the earliest moment at which the next run may start.
func (c *Coalescer[K, T]) readyLocked() time.Time {
	if c.stats.Runs == 0 {
		return time.Time{}
	}
	return c.lastStart.Add(c.pace)
}

// startLocked makes r the running run. From here on nobody joins it, so every waiter came before its work begins; keys
// are those of the waiters that are still there.
func (c *Coalescer[K, T]) startLocked(r *run[K, T], keys []K, now time.Time) {
	c.running = r
	c.lastStart = now
	c.stats.Runs++
	// A promise that waited behind a wedged run has less than a budget left: nobody waits longer than two.
	r.due = now.Add(c.budget)
	if last := r.made.Add(c.budget).Add(c.budget).Add(c.pace); last.Before(r.due) {
		r.due = last
	}
	r.ctx, r.cancel = context.WithCancelCause(c.values)
	c.works.Add(1)
	go c.execute(r, keys) // ends when the work returns; Close waits for it
}

// execute calls the work and settles the run however the work ends.
func (c *Coalescer[K, T]) execute(r *run[K, T], keys []K) {
	defer c.works.Done()
	returned := false
	defer func() {
		if !returned {
			c.fail(r, recover())
		}
	}()
	val, err := c.work(r.ctx, keys)
	returned = true
	c.settle(r, val, err, nil)
}

// fail settles a run whose work did not return. A panic with nil arrives here as a *runtime.PanicNilError.
func (c *Coalescer[K, T]) fail(r *run[K, T], value any) {
	if value == nil {
		value = ErrGoexit
	}
	var val T
	p := &PanicError{Value: value, Stack: debug.Stack()}
	if !c.settle(r, val, nil, p) {
		c.log.Error("fresh: work panicked with no caller left to tell", zap.Any("panic", p.Value), zap.ByteString("stack", p.Stack))
	}
}

// settle answers r, frees the slot and lets the promised run follow. It reports whether anybody heard the answer.
func (c *Coalescer[K, T]) settle(r *run[K, T], val T, err error, panicked *PanicError) (heard bool) {
	c.mu.Lock()
	c.running, c.wedged = nil, false
	heard = !r.answered && !r.deserted
	if heard {
		r.val, r.err, r.panicked = val, err, panicked
		if err != nil || panicked != nil {
			c.stats.Failed++
		}
	}
	c.answerLocked(r)
	if c.next != nil {
		c.advanceLocked(c.clock.Now())
	}
	c.mu.Unlock()
	r.cancel(context.Canceled)
	return heard
}

func (c *Coalescer[K, T]) answerLocked(r *run[K, T]) {
	if !r.answered {
		r.answered = true
		close(r.done)
	}
}

// wake does what has become due: it ends budgets and starts a promise that waited for the pace. It looks at the state
// rather than at why it was called, so a timer that fires late or for nothing does no harm, and a Mock that forgets a
// reset while it fires is set again.
func (c *Coalescer[K, T]) wake() {
	c.mu.Lock()
	now := c.clock.Now()
	c.armed = time.Time{}
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

// armLocked sees to it that wake is called when the next thing is due. A timer that is set for an earlier moment is left
// alone, since wake looks again: so a run that ends in time costs no timer operation.
func (c *Coalescer[K, T]) armLocked(now time.Time) {
	var at time.Time
	switch {
	case c.running != nil && !c.wedged:
		at = c.running.due
	case c.next == nil || c.base.Err() != nil:
		return
	case c.wedged:
		at = c.next.due
	default:
		at = c.readyLocked()
	}
	switch {
	case !c.armed.IsZero() && !at.Before(c.armed):
	case c.timer == nil:
		c.armed, c.timer = at, c.clock.AfterFunc(at.Sub(now), c.wake)
	default:
		c.armed = at
		c.timer.Reset(at.Sub(now))
	}
}
