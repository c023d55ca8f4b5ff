package backend

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"
)

// call names one call for errors and logs.
type call struct {
	name, id string
	budget   time.Duration
}

func (c call) String() string {
	if c.id == "" {
		return c.name
	}
	return fmt.Sprintf("%s %q", c.name, c.id)
}

// result is what a call came to.
type result[T any] struct {
	v    T
	err  error
	died error // it panicked or left by runtime.Goexit
}

// within runs f under the call's budget, in a goroutine of its own so that it can be left behind.
func within[T any](ctx context.Context, bs Budgets, c call, f func(context.Context) (T, error)) (T, error) {
	if c.budget < 0 {
		return f(ctx)
	}
	bctx, end := withBudget(ctx, bs.Clock, c)
	start := bs.Clock.Now()
	answer := make(chan result[T])
	bs.Running.Add(1)
	go func() { // ends when f returns
		defer bs.Running.Done()
		defer end()
		var r result[T]
		defer func() { // deferred for the sake of Goexit
			if !r.deliver(bctx, answer) {
				bs.straggled(c, bs.Clock.Since(start), r.err, r.died)
			}
		}()
		r.run(bctx, c, f)
	}()
	select {
	case r := <-answer:
		if r.died != nil {
			panic(r.died)
		}
		return r.v, r.err
	case <-bctx.Done():
		var none T
		return none, bs.leave(bctx, c)
	}
}

func (r *result[T]) run(ctx context.Context, c call, f func(context.Context) (T, error)) {
	r.died = fmt.Errorf("backend: %s left by runtime.Goexit", c)
	defer func() {
		if p := recover(); p != nil {
			r.died = fmt.Errorf("backend: %s panicked: %v\n\n%s", c, p, debug.Stack())
		}
	}()
	r.v, r.err = f(ctx)
	r.died = nil
}

// deliver hands the result to the caller, unless the call's context has ended: then the caller goes with the reason of that,
// and not with what the call made of it, however close the two were.
func (r result[T]) deliver(ctx context.Context, to chan<- result[T]) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case to <- r:
		return true
	case <-ctx.Done():
		return false
	}
}

// leave returns why the caller goes before its call has ended.
func (bs Budgets) leave(ctx context.Context, c call) error {
	cause := context.Cause(ctx)
	if !errors.Is(cause, ErrBudget) { // the caller's own wish, which is no news
		return fmt.Errorf("backend: %s: its effect is unknown: %w", c, ctx.Err())
	}
	bs.Logger.Warn("backend call exceeded its budget", zap.Stringer("call", c), zap.Duration("budget", c.budget))
	return cause
}

// straggled tells the true result of a call whose caller has gone.
func (bs Budgets) straggled(c call, took time.Duration, err, died error) {
	if died != nil {
		bs.Logger.Error("backend call ended after its caller", zap.Stringer("call", c), zap.Duration("took", took), zap.Error(died))
		return
	}
	bs.Logger.Info("backend call ended after its caller", zap.Stringer("call", c), zap.Duration("took", took), zap.Error(err))
}

// budgetContext is a context with a deadline of an injected clock. clock.Mock has one too, whose Err is a data race.
type budgetContext struct {
	context.Context
	deadline time.Time
}

// withBudget returns a context that ends with ctx or, caused by an ErrBudget, at the budget; end releases it.
func withBudget(ctx context.Context, c clock.Clock, of call) (b budgetContext, end func()) {
	inner, cancel := context.WithCancelCause(ctx)
	deadline := c.Now().Add(of.budget)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	timer := c.AfterFunc(of.budget, func() {
		cancel(fmt.Errorf("%w: %s got no answer within %s, its effect is unknown", ErrBudget, of, of.budget))
	})
	return budgetContext{inner, deadline}, func() {
		timer.Stop()
		cancel(nil)
	}
}

func (c budgetContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Err is what a deadline gives, for the clients that tell the two apart.
func (c budgetContext) Err() error {
	if errors.Is(context.Cause(c.Context), ErrBudget) {
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}
