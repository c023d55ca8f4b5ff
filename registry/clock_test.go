package registry_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/registry"
	"github.com/keepwell-go/keepwell/registry/fresh"
)

func TestAMockClockDrivesGraceAndBudgets(t *testing.T) {
	mock := clock.NewMock()
	b := &backend{items: map[string]int{"slow": 1}}
	adopting := make(chan struct{})
	r := registry.New(b.list, config{Clock: mock, Budget: time.Hour, Adopt: func(ctx context.Context, _ string, v int) (int, error) {
		close(adopting)
		<-ctx.Done()
		return 0, context.Cause(ctx)
	}})
	defer r.Close()
	fill(t, r, "a", 1)
	mock.Add(30*time.Second - 1)
	if _, err := r.Refresh(t.Context(), "a"); err != nil {
		t.Errorf("a young entry: %v", err)
	}
	mock.Add(1)
	if _, err := r.Refresh(t.Context(), "a"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("at its grace: %v", err)
	}
	over := make(chan error)
	go func() { _, err := r.Resolve(t.Context(), "slow"); over <- err }()
	<-adopting
	mock.Add(time.Hour)
	if err := <-over; !errors.Is(err, fresh.ErrBudget) {
		t.Errorf("an adoption over its budget: %v", err)
	}
	for r.Stats().Lists.Running {
		runtime.Gosched()
	}
}

// ticking is a clock that counts the timers that fire, and whose timers fire although they were stopped if late is set, as
// one does that had begun to.
type ticking struct {
	clock.Clock
	late  bool
	fired atomic.Int64
}

func (c *ticking) AfterFunc(d time.Duration, f func()) *clock.Timer {
	timer := c.Clock.AfterFunc(d, func() { c.fired.Add(1); f() })
	if c.late {
		return c.Clock.AfterFunc(d, func() {})
	}
	return timer
}

func TestABudgetThatEndsDuringTheReportIsNotExceeded(t *testing.T) {
	cfg := config{
		Clock: &ticking{Clock: clock.New(), late: true}, Budget: time.Second,
		Adopt:   func(_ context.Context, _ string, v int) (int, error) { return v, nil },
		Observe: func(event) { time.Sleep(time.Minute) },
	}
	run(t, &backend{items: map[string]int{"a": 1}}, cfg, func(t *testing.T, r *reg) {
		if a := <-resolve(t.Context(), r, "a"); a.err != nil || a.took != time.Minute || r.Stats().AdoptFailed != 0 {
			t.Errorf("Resolve = %+v, %+v", a, r.Stats())
		}
	})
}

func TestABudgetThatEndsAfterTheAdoptionDoesNothing(t *testing.T) {
	cfg := config{
		Clock: &ticking{Clock: clock.New(), late: true}, Budget: time.Second,
		Adopt: func(context.Context, string, int) (int, error) { return 0, stopped{} },
	}
	run(t, &backend{items: map[string]int{"a": 1}}, cfg, func(t *testing.T, r *reg) {
		if a := <-resolve(t.Context(), r, "a"); !errors.Is(a.err, registry.ErrNotAdoptable) {
			t.Errorf("Resolve = %+v", a)
		}
		time.Sleep(time.Minute)
		if s := r.Stats(); s.AdoptFailed != 0 || s.Declined != 1 {
			t.Errorf("Stats = %+v", s)
		}
	})
}

func TestAnAdoptionLeavesNoTimer(t *testing.T) {
	cl := &ticking{Clock: clock.New()}
	cfg := config{Clock: cl, Adopt: slowly}
	run(t, &backend{items: map[string]int{"a": 1}}, cfg, func(t *testing.T, r *reg) {
		<-resolve(t.Context(), r, "a")
		r.Close()
		time.Sleep(time.Hour)
		if n := cl.fired.Load(); n != 0 {
			t.Errorf("%d timers fired", n)
		}
	})
}

func TestCloseWaitsForAListThatTakesItsTimeToEnd(t *testing.T) {
	b := &backend{}
	deaf := func(ctx context.Context, keys []string) (snapshot, error) {
		<-ctx.Done()
		time.Sleep(time.Second)
		return b.list(ctx, keys)
	}
	synctest.Test(t, func(t *testing.T) {
		r := registry.New(deaf, config{})
		waits := resolve(t.Context(), r, "a")
		begun := time.Now()
		r.Close()
		if took := time.Since(begun); took != time.Second || r.Stats().Lists.Running {
			t.Errorf("closed after %v, %+v", took, r.Stats())
		}
		if a := <-waits; !errors.Is(a.err, fresh.ErrClosed) {
			t.Errorf("Resolve = %+v", a)
		}
	})
}
