package probe

import (
	"context"
	"runtime/debug"
	"time"

	"go.uber.org/zap"
)

// measure makes one measurement, unless one was finished since its caller looked. It is called by one goroutine at a time, and keeps the
// result before it returns, so that nobody comes between the two.
func (p *Probe[T]) measure() (any, error) {
	if !p.begin() {
		return p.Peek(), ErrClosed
	}
	defer p.work.Done()
	if last := p.last.Load(); p.fresh(last) {
		p.cached.Add(1)
		return last.Result, nil
	}
	start := p.cfg.Clock.Now()
	out := p.bounded(start)
	r, before, ok := p.settle(start, out)
	if !ok {
		return p.Peek(), ErrClosed
	}
	if before != r.State {
		p.cfg.Logger.Info("probe state changed", zap.Stringer("from", before), zap.Stringer("to", r.State), zap.Error(r.Err))
	}
	return r, nil
}

// begin enters the work that Close waits for.
func (p *Probe[T]) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.work.Add(1)
	}
	return !p.closed
}

// settle keeps the outcome as the last result. It returns the state before it too.
func (p *Probe[T]) settle(start time.Time, out outcome[T]) (r Result[T], before State, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return r, before, false
	}
	before = p.last.Load().State
	r = Result[T]{Value: out.value, Status: Status{State: before, Err: out.err, At: out.at, Took: max(0, out.at.Sub(start))}}
	ttl := p.cfg.TTL
	if out.err == nil {
		p.streak = max(p.streak, 0) + 1
	} else {
		p.streak = min(p.streak, 0) - 1
		p.stats.Failed++
		ttl = p.cfg.FailureTTL
	}
	switch {
	case p.streak >= p.cfg.Rise:
		r.State = Up
	case -p.streak >= p.cfg.Fall:
		r.State = Down
	}
	p.last.Store(&kept[T]{Result: r, ttl: ttl})
	return r, before, true
}

// outcome is how a check ended, and when.
type outcome[T any] struct {
	value T
	err   error
	at    time.Time
}

// bounded runs the check and returns its outcome, or, when the budget is over, that it is. It waits for a check that is still
// outstanding as part of the same budget.
func (p *Probe[T]) bounded(start time.Time) outcome[T] {
	ctx, cancel := context.WithCancelCause(p.base)
	defer cancel(nil)
	defer p.cfg.Clock.AfterFunc(p.cfg.Budget, func() { cancel(p.overBudget) }).Stop()
	select {
	case p.slot <- struct{}{}:
	case <-ctx.Done():
		return p.late()
	}
	done := make(chan outcome[T], 1)
	p.mu.Lock()
	p.stats.Checks++
	p.stats.Running = true
	p.mu.Unlock()
	p.work.Add(1)
	go p.call(ctx, done) // ends when the check does; Close waits for it
	select {
	case out := <-done:
		return p.inTime(start, out)
	case <-ctx.Done():
	}
	select {
	case out := <-done: // both were ready
		return p.inTime(start, out)
	default:
		p.warnIfWedged()
		return p.late()
	}
}

func (p *Probe[T]) late() outcome[T] {
	return outcome[T]{err: p.overBudget, at: p.cfg.Clock.Now()}
}

// inTime judges by when the check returned, not by which of two channels was seen first. Most checks that are cancelled say so.
func (p *Probe[T]) inTime(start time.Time, out outcome[T]) outcome[T] {
	if out.at.Sub(start) >= p.cfg.Budget {
		return outcome[T]{err: p.overBudget, at: out.at}
	}
	return out
}

// call runs the check, whichever way it ends, and frees the slot.
func (p *Probe[T]) call(ctx context.Context, done chan<- outcome[T]) {
	defer p.work.Done()
	out := outcome[T]{err: ErrGoexit}
	defer func() {
		if v := recover(); v != nil {
			out.err = &PanicError{Value: v, Stack: debug.Stack()}
		}
		out.at = p.cfg.Clock.Now()
		p.mu.Lock()
		p.stats.Running, p.stats.Wedged = false, false
		p.mu.Unlock()
		<-p.slot
		done <- out // has room; nobody takes it if the budget is over
	}()
	out.value, out.err = p.check(ctx)
}

func (p *Probe[T]) warnIfWedged() {
	p.mu.Lock()
	p.stats.Wedged = p.stats.Running
	wedged := p.stats.Wedged && !p.closed
	p.mu.Unlock()
	if wedged {
		p.cfg.Logger.Warn("probe check still running after its budget; no other is started until it returns",
			zap.Duration("budget", p.cfg.Budget))
	}
}
