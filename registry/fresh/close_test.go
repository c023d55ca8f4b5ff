package fresh_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/registry/fresh"
)

func TestCloseAnswersEverybodyAndWaitsForTheWork(t *testing.T) {
	var cause error
	s := &source{play: func(ctx context.Context, _ int) error {
		<-ctx.Done()
		cause = context.Cause(ctx)
		time.Sleep(time.Second)
		return nil
	}}
	run(t, s, fresh.Config{}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		first, second := ask(t.Context(), c), ask(t.Context(), c)
		begun := time.Now()
		closed := make(chan time.Duration)
		go func() { c.Close(); closed <- time.Since(begun) }()
		for _, ch := range []<-chan answer{first, second} {
			if a := <-ch; a != (answer{err: fresh.ErrClosed}) {
				t.Errorf("waiter: %+v", a)
			}
		}
		if took := <-closed; took != time.Second {
			t.Errorf("Close returned after %v, the work takes 1s to end", took)
		}
		if cause != fresh.ErrClosed {
			t.Errorf("the run was cancelled because of %v", cause)
		}
		if a := <-ask(t.Context(), c); a != (answer{err: fresh.ErrClosed}) {
			t.Errorf("Do after Close: %+v", a)
		}
		c.Close() // twice
		if st := c.Stats(); st != (fresh.Stats{Runs: 1}) {
			t.Errorf("Stats = %+v", st)
		}
	})
}

func TestTheEndOfTheBaseClosesWithoutWaiting(t *testing.T) {
	s := deaf(time.Minute)
	synctest.Test(t, func(t *testing.T) {
		base, end := context.WithCancel(t.Context())
		c := fresh.New(s.work, fresh.Config{Base: base, Budget: time.Second, MinInterval: time.Hour})
		first, second := ask(t.Context(), c), ask(t.Context(), c)
		end()
		if a := <-ask(t.Context(), c); a != (answer{err: fresh.ErrClosed}) {
			t.Errorf("Do after the end: %+v", a)
		}
		for _, ch := range []<-chan answer{first, second} {
			if a := <-ch; a != (answer{err: fresh.ErrClosed}) {
				t.Errorf("waiter: %+v", a)
			}
		}
		if st := c.Stats(); st != (fresh.Stats{Runs: 1, Running: true}) {
			t.Errorf("Stats = %+v", st)
		}
		time.Sleep(2 * time.Minute)
		if st := c.Stats(); st != (fresh.Stats{Runs: 1}) {
			t.Errorf("Stats when the work has returned = %+v", st)
		}
		c.Close()
	})
}

func TestABaseThatHasEndedStartsNothing(t *testing.T) {
	s := &source{}
	synctest.Test(t, func(t *testing.T) {
		base, end := context.WithCancel(t.Context())
		end()
		c := fresh.New(s.work, fresh.Config{Base: base})
		if _, err := c.Do(t.Context()); err != fresh.ErrClosed || s.runs != 0 {
			t.Errorf("Do = %v, %d runs", err, s.runs)
		}
	})
}

func TestACallerWhoHasLeftAlreadyStartsNothing(t *testing.T) {
	s := &source{}
	run(t, s, fresh.Config{}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		ctx, leave := context.WithCancel(t.Context())
		leave()
		if _, err := c.Do(ctx); err != context.Canceled || s.runs != 0 {
			t.Errorf("Do = %v, %d runs", err, s.runs)
		}
	})
}

func TestMisusePanicsWithTheNameOfThePackage(t *testing.T) {
	work := func(context.Context, []string) (int, error) { return 0, nil }
	for want, misuse := range map[string]func(){
		"fresh: nil work": func() { fresh.New[string, int](nil, fresh.Config{}) },
		"fresh: negative Budget -1ns or MinInterval 0s": func() { fresh.New(work, fresh.Config{Budget: -1}) },
		"fresh: negative Budget 0s or MinInterval -1ns": func() { fresh.New(work, fresh.Config{MinInterval: -1}) },
	} {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("panicked with %v, want %q", got, want)
				}
			}()
			misuse()
		}()
	}
}

// counting is a clock that counts how often it is read.
type counting struct {
	clock.Clock
	reads atomic.Int64
}

func (c *counting) Since(t time.Time) time.Duration {
	c.reads.Add(1)
	return c.Clock.Since(t)
}

func TestNothingHappensAfterClose(t *testing.T) {
	cl := &counting{Clock: clock.New()}
	run(t, &source{}, fresh.Config{Clock: cl}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		<-ask(t.Context(), c)
		c.Close()
		before := cl.reads.Load()
		time.Sleep(time.Hour)
		if after := cl.reads.Load(); after != before {
			t.Errorf("the clock was read %d times after Close", after-before)
		}
	})
}

// base is a context that knows who listens for its end.
type base struct {
	context.Context
	done      chan struct{}
	listeners atomic.Int64
}

func (b *base) Done() <-chan struct{} { return b.done }

func (b *base) AfterFunc(f func()) func() bool {
	b.listeners.Add(1)
	stop := context.AfterFunc(b.Context, f)
	return func() bool { b.listeners.Add(-1); return stop() }
}

func TestNothingOfARunOrACoalescerIsLeftBehind(t *testing.T) {
	var ctx context.Context
	s := &source{play: func(c context.Context, _ int) error { ctx = c; return nil }}
	b := &base{Context: context.Background(), done: make(chan struct{})}
	run(t, s, fresh.Config{Base: b}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		<-ask(t.Context(), c)
		synctest.Wait()
		if ctx.Err() != context.Canceled {
			t.Error("the context of a run outlives it")
		}
		if b.listeners.Load() != 1 {
			t.Errorf("%d listen for the end of the base", b.listeners.Load())
		}
		c.Close()
		if b.listeners.Load() != 0 {
			t.Error("a closed coalescer listens for the end of its base")
		}
	})
}
