package probe_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/probe"
)

// hooked is a clock that a test may stop where it is asked for the age of a result, and whose timers never fire.
type hooked struct {
	*clock.Mock
	asked func()
}

func (h *hooked) Since(t time.Time) time.Duration {
	d := h.Mock.Since(t)
	h.asked()
	return d
}

func (h *hooked) AfterFunc(time.Duration, func()) *clock.Timer {
	return h.Mock.AfterFunc(time.Hour, func() {})
}

// TestACallerThatLookedTooEarlyDoesNotMeasureAgain: between its look at the old result and its turn to measure, another caller's
// measurement begins and ends. R39
func TestACallerThatLookedTooEarlyDoesNotMeasureAgain(t *testing.T) {
	looked, goOn := make(chan struct{}), make(chan struct{})
	var stop atomic.Bool
	c := &hooked{Mock: clock.NewMock(), asked: func() {
		if stop.CompareAndSwap(true, false) {
			close(looked)
			<-goOn
		}
	}}
	check, calls, _ := counting(ok)
	p := probe.New(check, probe.Config{Clock: c, TTL: time.Second})
	defer p.Close()
	get := func() {
		if r, err := p.Get(context.Background()); err != nil || r.Value != 7 {
			t.Errorf("got %+v, %v", r, err)
		}
	}
	get()
	c.Set(time.Unix(1, 0))
	stop.Store(true)
	var early sync.WaitGroup
	early.Go(get)
	<-looked
	get()
	close(goOn)
	early.Wait()
	if s := p.Stats(); calls.Load() != 2 || s.Checks != 2 || s.Cached != 1 || s.Joined != 0 {
		t.Errorf("%d checks, stats %+v", calls.Load(), s)
	}
}

// TestTheBudgetIsJudgedByTheClock: a check that returns at the end of its budget is late even if no timer has said so.
func TestTheBudgetIsJudgedByTheClock(t *testing.T) {
	for took, want := range map[time.Duration]error{time.Second - 1: nil, time.Second: probe.ErrBudget, time.Second + 1: probe.ErrBudget} {
		c := &hooked{Mock: clock.NewMock(), asked: func() {}}
		p := probe.New(func(context.Context) (int, error) {
			c.Set(c.Now().Add(took))
			return 7, nil
		}, probe.Config{Clock: c, Budget: time.Second})
		r, err := p.Get(context.Background())
		if err != nil || !errors.Is(r.Err, want) || (r.Value == 7) != (want == nil) || r.Took != took {
			t.Errorf("after %v: %+v, %v", took, r, err)
		}
		p.Close()
	}
}

// TestCloseBesideManyCallers lets the end of the check, which Close brings about, race with Close itself for each caller's attention.
func TestCloseBesideManyCallers(t *testing.T) {
	for range 300 {
		begun := make(chan struct{})
		p := probe.New(func(ctx context.Context) (int, error) {
			close(begun)
			<-ctx.Done()
			return 7, nil
		}, probe.Config{})
		var callers sync.WaitGroup
		for range 20 {
			callers.Go(func() {
				if r, err := p.Get(context.Background()); !errors.Is(err, probe.ErrClosed) || r.Value != 0 {
					t.Errorf("got %+v, %v", r, err)
				}
			})
		}
		<-begun
		p.Close()
		callers.Wait()
		if r := p.Peek(); !r.At.IsZero() {
			t.Errorf("kept %+v", r)
		}
	}
}
