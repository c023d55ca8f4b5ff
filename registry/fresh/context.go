package fresh

import (
	"context"
	"fmt"
	"sync"
)

// runContext is the context of one run. The cancellable context that it stands for is made when somebody first looks at it, which
// work that fails early or answers from what it has at hand does not do. Package context finds that one through Value, so whatever is
// derived from a run's context hangs on it directly, without a goroutine, and context.Cause knows why it ended.
type runContext struct {
	context.Context // what the run inherits: values and no end

	once sync.Once
	made context.Context

	mu     *sync.Mutex             // of the Coalescer; guards the fields below
	cancel context.CancelCauseFunc // of made; nil before that
	cause  error                   // why it ended; nil before that
}

func (x *runContext) Done() <-chan struct{} { return x.look().Done() }
func (x *runContext) Err() error            { return x.look().Err() }
func (x *runContext) Value(key any) any     { return x.look().Value(key) }
func (x *runContext) String() string        { return fmt.Sprint(x.look()) }

func (x *runContext) look() context.Context {
	x.once.Do(func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.made, x.cancel = context.WithCancelCause(x.Context)
		if x.cause != nil {
			x.cancel(x.cause)
		}
	})
	return x.made
}

// endLocked cancels the context, if nothing has yet.
func (x *runContext) endLocked(cause error) {
	if x.cause != nil {
		return
	}
	x.cause = cause
	if x.cancel != nil {
		x.cancel(cause)
	}
}
