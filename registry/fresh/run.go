package fresh

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"go.uber.org/zap"
)

// crowd is how many callers share a channel. The runtime wakes those of one channel last come, first served, which would let the
// first of thousands wait longest.
const crowd = 100

// run is one call of the work. It is promised, unless it can start at once, then started, then answered; the work may return before
// or after that. Coalescer.mu guards it, except for what is wanted once it has started, and the answer, the last three, once it is there.
type run[K comparable, T any] struct {
	due     time.Duration // when its waiters are answered ErrBudget; while promised, only if the running one is wedged
	last    time.Duration // what due must not pass: nobody waits longer than two budgets and an interval
	waiters int

	everything int       // waiters that asked for everything
	wanted     map[K]int // waiters by key, duplicates counted; nil if nobody named a key, or if only has it
	only       [1]K      // the key of a run that started at once for one key

	ctx      runContext
	deserted bool // cancelled because nobody waited

	full []chan struct{} // closed before done, one after the other; each has a crowd
	done chan struct{}   // of those who come now; closed when answered
	came int             // those who were given done

	answered bool
	val      T
	err      error
	panicked *PanicError
}

// join starts a run for the caller, or adds it to the promised one if something stands in the way of a start; nil when closed. The
// channel is closed when the run is answered.
func (c *Coalescer[K, T]) join(keys []K) (*run[K, T], <-chan struct{}) {
	mustHash(keys)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.base.Err() != nil {
		return nil, nil
	}
	if c.next != nil {
		c.next.add(keys)
		return c.next, c.next.done
	}
	now := c.now()
	r := &run[K, T]{last: now + 2*c.budget + c.pace, done: make(chan struct{})}
	if c.running == nil && c.readyLocked(now) {
		r.addOnly(keys)
		c.startLocked(r, now)
	} else {
		r.add(keys)
		r.due = now + c.budget
		c.next = r
	}
	c.armLocked(now)
	return r, r.done
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
		r.ctx.endLocked(context.Canceled)
	}
	return false
}

// advanceLocked starts the promised run if the slot is free and the pace allows it, and sees to it that wake is called
// when the next thing is due.
func (c *Coalescer[K, T]) advanceLocked(now time.Duration) {
	if r := c.next; r != nil && c.running == nil && c.base.Err() == nil && c.readyLocked(now) {
		c.next = nil
		c.startLocked(r, now)
	}
	c.armLocked(now)
}

// readyLocked reports whether the pace allows a start. Without one no jump of the clock can delay it.
func (c *Coalescer[K, T]) readyLocked(now time.Duration) bool {
	return c.pace == 0 || c.stats.Runs == 0 || now >= c.ready
}

// startLocked makes r the running run. From here on nobody joins it, so every waiter came before its work begins, and what they want
// does not change any more: it is what those want who are still there.
func (c *Coalescer[K, T]) startLocked(r *run[K, T], now time.Duration) {
	c.running = r
	c.ready = now + c.pace
	c.stats.Runs++
	r.due = min(now+c.budget, r.last) // a promise that waited behind a wedged run has less than a budget left
	r.ctx.Context, r.ctx.mu = c.values, &c.mu
	go c.begin() // ends when the work returns; Close waits for it
}

// execute calls the work of the running run and settles it however the work ends. Until then nobody else writes running.
func (c *Coalescer[K, T]) execute() {
	r, returned := c.running, false
	defer func() {
		if !returned {
			c.fail(r, recover())
		}
	}()
	val, err := c.work(&r.ctx, r.union())
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
	if c.settle(r, val, nil, p) {
		return
	}
	c.log.Error("fresh: work panicked with no caller left to tell", zap.Any("panic", p.Value), zap.ByteString("stack", p.Stack))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.freeLocked(r)
}

// settle answers r, frees the slot and lets the promised run follow. It does nothing and returns false if that is a panic that
// nobody hears: it is to be logged before Close can return.
func (c *Coalescer[K, T]) settle(r *run[K, T], val T, err error, panicked *PanicError) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if heard := !r.answered && !r.deserted; heard {
		r.val, r.err, r.panicked = val, err, panicked
		if err != nil || panicked != nil {
			c.stats.Failed++
		}
	} else if panicked != nil {
		return false
	}
	c.freeLocked(r)
	return true
}

// freeLocked ends r, the running run.
func (c *Coalescer[K, T]) freeLocked(r *run[K, T]) {
	c.running, c.wedged = nil, false
	r.ctx.endLocked(context.Canceled)
	c.answerLocked(r)
	if c.next != nil {
		c.advanceLocked(c.now())
	}
	if c.closed {
		c.idle.Broadcast()
	}
}

func (c *Coalescer[K, T]) answerLocked(r *run[K, T]) {
	if !r.answered {
		r.answered = true
		for _, ch := range r.full {
			close(ch)
		}
		close(r.done)
	}
}

// wake does what has become due: it ends budgets and starts a promise that waited for the pace. It looks at the state
// rather than at why it was called, so a timer that fires late or for nothing does no harm, and a Mock that forgets a
// reset while it fires is set again.
func (c *Coalescer[K, T]) wake() {
	c.mu.Lock()
	now := c.now()
	c.armed = 0
	over := !c.closed && c.running != nil && !c.wedged && now >= c.running.due
	if over {
		c.expireLocked(now)
	}
	if c.wedged && c.next != nil && now >= c.next.due {
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
func (c *Coalescer[K, T]) expireLocked(now time.Duration) {
	r := c.running
	c.wedged = true
	if !r.deserted {
		r.err = c.budgetError()
		c.stats.Failed++
	}
	c.answerLocked(r)
	r.ctx.endLocked(ErrBudget)
	if c.next != nil {
		c.next.due = now + c.budget
	}
}

func (c *Coalescer[K, T]) budgetError() error {
	return fmt.Errorf("%w of %v", ErrBudget, c.budget)
}

// armLocked sees to it that wake is called when the next thing is due. A timer that is set for an earlier moment is left
// alone, since wake looks again: so a run that ends in time costs no timer operation.
func (c *Coalescer[K, T]) armLocked(now time.Duration) {
	var at time.Duration
	switch {
	case c.running != nil && !c.wedged:
		at = c.running.due
	case c.next == nil || c.base.Err() != nil:
		return
	case c.wedged:
		at = c.next.due
	default:
		at = c.ready
	}
	switch {
	case c.armed != 0 && at >= c.armed:
	case c.timer == nil:
		c.armed, c.timer = at, c.clock.AfterFunc(at-now, c.wake)
	default:
		c.armed = at
		c.timer.Reset(at - now)
	}
}
