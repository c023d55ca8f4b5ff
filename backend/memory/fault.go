package memory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keepwell-go/keepwell/backend"
)

// Fault is what happens to the calls that it matches. Its parts happen in the order of the fields: Do, Delay, Hang, Panic, Err.
// The zero Fault matches every call and changes none.
type Fault struct {
	Call  string // "create", "list", "stop", "destroy", "mark" or "ping"; "": every call
	ID    string // the id that the call names; "": whatever it names
	Times int    // how many calls are hit; 0: all until it is lifted

	After   bool // the call takes effect first: what follows costs only the answer
	Partial bool // a list misses half and says so; a destroy ends the instance, fails, and the workspace stays

	Do    func(ctx context.Context) error // called outside of all locks; its error is the call's. nil: nothing
	Delay time.Duration                   // of the engine's clock, cut short by the call's context
	Hang  bool                            // no answer until the fault is lifted or the call's context ends
	Deaf  bool                            // Delay and Hang do not heed the context
	Panic any                             // nil: none
	Err   error                           // nil: none
}

type fault struct {
	Fault
	lifted chan struct{}
}

// Inject makes f happen from now on, before all older faults: of those that match, the newest alone happens. lift ends it, and
// lets the calls that hang in it go on; it may be called twice. Inject panics on a Call that does not exist, on Partial
// without Call "list" or "destroy", and on negative Times or Delay.
func (e *Engine) Inject(f Fault) (lift func()) {
	if !slices.Contains([]string{"", "create", "list", "stop", "destroy", "mark", "ping"}, f.Call) {
		panic(fmt.Sprintf("memory: no call is named %q", f.Call))
	}
	if f.Partial && f.Call != "list" && f.Call != "destroy" {
		panic(fmt.Sprintf("memory: a %q cannot be partial", f.Call))
	}
	if f.Times < 0 || f.Delay < 0 {
		panic(fmt.Sprintf("memory: negative Times %d or Delay %v", f.Times, f.Delay))
	}
	in := &fault{f, make(chan struct{})}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults = append(e.faults, in)
	return sync.OnceFunc(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		close(in.lifted)
		e.faults = slices.DeleteFunc(e.faults, func(f *fault) bool { return f == in })
	})
}

// Break makes the engine unreachable: every call is backend.ErrUnavailable until mend is called.
func (e *Engine) Break() (mend func()) {
	return e.Inject(Fault{Err: fmt.Errorf("%w: the engine is down", backend.ErrUnavailable)})
}

// arrive counts a call and returns the fault that it meets.
func (e *Engine) arrive(call, id string) *fault {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls[call]++
	for i, f := range slices.Backward(e.faults) {
		if f.Call != "" && f.Call != call || f.ID != "" && !slices.Contains(strings.Split(id, ","), f.ID) {
			continue
		}
		if f.Times == 1 {
			e.faults = slices.Delete(e.faults, i, i+1)
		}
		if f.Times > 1 {
			f.Times--
		}
		return f
	}
	return &fault{}
}

// do is one call: counted, checked, then its fault and its effect in the order that the fault says.
func do[T any](ctx context.Context, e *Engine, call, id string, check func() error, effect func(partial bool) (T, error)) (v T, err error) {
	f := e.arrive(call, id)
	if check != nil {
		if err := check(); err != nil {
			return v, err
		}
	}
	if !f.After {
		if err := f.happen(ctx, e, call, id); err != nil {
			return v, err
		}
	}
	if err := ctx.Err(); err != nil && !f.Deaf {
		return v, fmt.Errorf("memory: %s %q: %w", call, id, err)
	}
	got, err := effect(f.Partial)
	if err == nil && f.After {
		err = f.happen(ctx, e, call, id)
	}
	if err != nil {
		return v, err
	}
	return got, nil
}

// happen carries out the fault; nil lets the call go on.
func (f *fault) happen(ctx context.Context, e *Engine, call, id string) error {
	if f.Do != nil {
		if err := f.Do(ctx); err != nil {
			return err
		}
	}
	if err := f.linger(ctx, e); err != nil {
		return fmt.Errorf("memory: %s %q: %w", call, id, err)
	}
	if f.Panic != nil {
		panic(f.Panic)
	}
	return f.Err
}

// linger is Delay and Hang.
func (f *fault) linger(ctx context.Context, e *Engine) error {
	ended := ctx.Done()
	if f.Deaf {
		ended = nil
	}
	if f.Delay > 0 {
		timer := e.cfg.Clock.Timer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ended:
			return ctx.Err()
		}
	}
	if f.Hang {
		select {
		case <-f.lifted:
		case <-ended:
			return ctx.Err()
		}
	}
	return nil
}
