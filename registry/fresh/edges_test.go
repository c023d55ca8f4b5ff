package fresh_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keepwell-go/keepwell/registry/fresh"
)

// deaf is work that lasts so long in its first run, whatever its context says, and no time afterwards.
func deaf(d time.Duration) *source {
	return &source{play: func(_ context.Context, run int) error {
		if run == 1 {
			time.Sleep(d)
		}
		return nil
	}}
}

func TestABudgetEndsTheWaitAndTheContext(t *testing.T) {
	var cause error
	s := &source{play: func(ctx context.Context, _ int) error {
		<-ctx.Done()
		cause = context.Cause(ctx)
		return ctx.Err()
	}}
	for budget, want := range map[time.Duration]time.Duration{0: 15 * time.Second, time.Second: time.Second} {
		run(t, s, fresh.Config{Budget: budget}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
			a := <-ask(t.Context(), c)
			if !errors.Is(a.err, fresh.ErrBudget) || a.err.Error() != "fresh: run exceeded its budget of "+want.String() || a.took != want {
				t.Errorf("budget %v: %+v", budget, a)
			}
			synctest.Wait()
			if cause != fresh.ErrBudget {
				t.Errorf("the context ended because of %v", cause)
			}
			if st := c.Stats(); st != (fresh.Stats{Runs: 1, Failed: 1}) {
				t.Errorf("Stats = %+v", st)
			}
		})
	}
}

func TestWorkThatIgnoresItsBudgetKeepsTheSlot(t *testing.T) { // R9
	logs, seen := observer.New(zap.WarnLevel)
	s := deaf(25 * time.Second)
	run(t, s, fresh.Config{Budget: 10 * time.Second, Logger: zap.New(logs)}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		first, second := ask(t.Context(), c), ask(t.Context(), c)
		if a := <-first; !errors.Is(a.err, fresh.ErrBudget) || a.took != 10*time.Second {
			t.Errorf("caller of the wedged run: %+v", a)
		}
		if st := c.Stats(); st != (fresh.Stats{Runs: 1, Failed: 1, Waiters: 1, Running: true, Promised: true, Wedged: true}) {
			t.Errorf("Stats = %+v", st)
		}
		time.Sleep(time.Second)
		joins := ask(t.Context(), c)
		for _, ch := range []<-chan answer{second, joins} { // one budget after the first
			if a := <-ch; !errors.Is(a.err, fresh.ErrBudget) || !strings.HasSuffix(a.err.Error(), " of 10s") || time.Duration(a.took) > 20*time.Second {
				t.Errorf("caller of the promised run: %+v", a)
			}
		}
		if st := c.Stats(); st != (fresh.Stats{Runs: 1, Failed: 1, NeverStarted: 1, Running: true, Wedged: true}) {
			t.Errorf("Stats = %+v", st)
		}
		if a := <-ask(t.Context(), c); a != (answer{run: 2, took: 5 * time.Second}) { // the work returns at 25 s
			t.Errorf("caller after that: %+v", a)
		}
		if st := c.Stats(); st != (fresh.Stats{Runs: 2, Failed: 1, NeverStarted: 1}) {
			t.Errorf("Stats = %+v", st)
		}
	})
	if all := seen.All(); len(all) != 1 || all[0].Message != "fresh: run exceeded its budget; no other starts until it returns" {
		t.Errorf("logged %v", all)
	}
}

func TestACallerDuringAWedgeIsAnsweredOneBudgetLater(t *testing.T) {
	run(t, deaf(time.Hour), fresh.Config{Budget: 10 * time.Second}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		<-ask(t.Context(), c)
		time.Sleep(time.Minute)
		if a := <-ask(t.Context(), c); !errors.Is(a.err, fresh.ErrBudget) || a.took != 10*time.Second {
			t.Errorf("caller during the wedge: %+v", a)
		}
		if st := c.Stats(); !st.Wedged || st.Promised || st.Waiters != 0 {
			t.Errorf("Stats = %+v", st)
		}
	})
}

func TestNobodyWaitsLongerThanTwoBudgets(t *testing.T) {
	s := &source{play: func(ctx context.Context, run int) error {
		time.Sleep(18 * time.Second) // returns 8 s late, whatever its context says
		return nil
	}}
	run(t, s, fresh.Config{Budget: 10 * time.Second}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		ask(t.Context(), c)
		if a := <-ask(t.Context(), c); !errors.Is(a.err, fresh.ErrBudget) || a.took != 20*time.Second {
			t.Errorf("promised caller: %+v", a) // its run starts at 18 s and has but 2 s left
		}
	})
}

func TestARunThatReturnsALittleLateIsFollowedAllTheSame(t *testing.T) { // R7
	s := deaf(10*time.Second + time.Millisecond)
	run(t, s, fresh.Config{Budget: 10 * time.Second}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		ask(t.Context(), c)
		if a := <-ask(t.Context(), c); a != (answer{run: 2, took: 10*time.Second + time.Millisecond}) {
			t.Errorf("follower: %+v", a)
		}
	})
}

func TestMinIntervalPacesTheStarts(t *testing.T) {
	s := &source{}
	run(t, s, fresh.Config{MinInterval: 10 * time.Second}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		first, second := ask(t.Context(), c), ask(t.Context(), c)
		if a := <-first; a != (answer{run: 1, took: time.Second}) {
			t.Errorf("first: %+v", a)
		}
		if st := c.Stats(); st != (fresh.Stats{Runs: 1, Waiters: 1, Promised: true}) {
			t.Errorf("Stats = %+v", st)
		}
		time.Sleep(time.Second)
		third := ask(t.Context(), c)
		if a := <-second; a != (answer{run: 2, took: 11 * time.Second}) {
			t.Errorf("second: %+v", a)
		}
		if a := <-third; a != (answer{run: 2, took: 9 * time.Second}) {
			t.Errorf("third, which shares it: %+v", a)
		}
		time.Sleep(8 * time.Second) // to the second 19
		if a := <-ask(t.Context(), c); a != (answer{run: 3, took: 2 * time.Second}) {
			t.Errorf("fourth: %+v", a)
		}
		time.Sleep(20 * time.Second)
		if a := <-ask(t.Context(), c); a != (answer{run: 4, took: time.Second}) {
			t.Errorf("one after a long rest: %+v", a)
		}
	})
}

func TestAPacedPromiseNobodyWaitsForIsNotStarted(t *testing.T) { // R81
	s := &source{}
	run(t, s, fresh.Config{MinInterval: 10 * time.Second}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		<-ask(t.Context(), c)
		ctx, leave := context.WithCancel(t.Context())
		leaver := ask(ctx, c)
		leave()
		<-leaver
		time.Sleep(time.Minute)
		if st := c.Stats(); st != (fresh.Stats{Runs: 1, NeverStarted: 1}) {
			t.Errorf("Stats = %+v", st)
		}
	})
}

func TestTheWorkIsToldTheUnionOfTheKeys(t *testing.T) {
	for _, tt := range []struct {
		name string
		asks [][]string
		want []string
	}{
		{"one", [][]string{{"a"}}, []string{"a"}},
		{"two of one caller", [][]string{{"b", "a"}}, []string{"a", "b"}},
		{"overlapping", [][]string{{"a", "b"}, {"b", "c"}, {"a"}}, []string{"a", "b", "c"}},
		{"repeated by one caller", [][]string{{"a", "a", "b"}}, []string{"a", "b"}},
		{"somebody wants everything", [][]string{{"a"}, {}, {"b"}}, nil},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			s := &source{}
			run(t, s, fresh.Config{}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
				first := ask(t.Context(), c, tt.asks[0]...) // starts at once
				var last <-chan answer
				for _, keys := range tt.asks {
					last = ask(t.Context(), c, keys...)
				}
				<-first
				<-last
			})
			alone := slices.Compact(slices.Sorted(slices.Values(tt.asks[0])))
			if !slices.Equal(s.keys[0], alone) || !slices.Equal(s.keys[1], tt.want) || (s.keys[1] == nil) != (tt.want == nil) {
				t.Errorf("told %q alone and %q together, want %q and %q", s.keys[0], s.keys[1], alone, tt.want)
			}
		})
	}
}

func TestTheKeysOfThoseWhoLeftAreForgotten(t *testing.T) { // R81
	for _, tt := range []struct {
		name          string
		leaves, stays []string
		want          []string
	}{
		{"another_key", []string{"a"}, []string{"b"}, []string{"b"}},
		{"everything", nil, []string{"b"}, []string{"b"}},
		{"the_same_key", []string{"a", "b", "a"}, []string{"b"}, []string{"b"}},
		{"one_of_everything", []string{"a"}, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &source{}
			run(t, s, fresh.Config{}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
				ctx, leave := context.WithCancel(t.Context())
				ask(t.Context(), c)
				ask(ctx, c, tt.leaves...)
				stays := ask(t.Context(), c, tt.stays...)
				leave()
				<-stays
			})
			if !slices.Equal(s.keys[1], tt.want) || (s.keys[1] == nil) != (tt.want == nil) {
				t.Errorf("told %q, want %q", s.keys[1], tt.want)
			}
		})
	}
}

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

func TestAPanicThatNobodyHearsIsLogged(t *testing.T) { // R82
	logs, seen := observer.New(zap.ErrorLevel)
	s := &source{play: func(ctx context.Context, _ int) error {
		<-ctx.Done()
		panic("boom")
	}}
	run(t, s, fresh.Config{Logger: zap.New(logs)}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		ctx, leave := context.WithCancel(t.Context())
		leaver := ask(ctx, c)
		leave()
		<-leaver
		synctest.Wait()
		if st := c.Stats(); st != (fresh.Stats{Runs: 1, Cancelled: 1}) {
			t.Errorf("Stats = %+v", st)
		}
	})
	if all := seen.All(); len(all) != 1 || all[0].Message != "fresh: work panicked with no caller left to tell" || all[0].ContextMap()["panic"] != "boom" {
		t.Errorf("logged %v", all)
	}
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

func TestAMockClockDrivesBudgetAndPace(t *testing.T) {
	mock := clock.NewMock()
	started, end := make(chan int), make(chan struct{})
	c := fresh.New(func(context.Context, []string) (int, error) {
		started <- 0
		<-end
		return 1, nil
	}, fresh.Config{Budget: time.Hour, MinInterval: 3 * time.Hour, Clock: mock})
	defer c.Close()
	wedged := make(chan error)
	go func() { _, err := c.Do(t.Context()); wedged <- err }()
	<-started
	mock.Add(time.Hour - 1)
	if c.Stats().Wedged {
		t.Error("wedged before its budget")
	}
	mock.Add(1)
	if err := <-wedged; !errors.Is(err, fresh.ErrBudget) {
		t.Errorf("after an hour: %v", err)
	}
	end <- struct{}{}
	paced := make(chan error)
	go func() { _, err := c.Do(t.Context()); paced <- err }()
	for !c.Stats().Promised || c.Stats().Running {
		runtime.Gosched()
	}
	mock.Add(2*time.Hour - 1)
	if c.Stats().Running {
		t.Error("started before its time")
	}
	mock.Add(1)
	<-started
	end <- struct{}{}
	if err := <-paced; err != nil {
		t.Errorf("paced caller: %v", err)
	}
}
