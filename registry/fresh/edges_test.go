package fresh_test

import (
	"context"
	"errors"
	"math"
	"runtime"
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
			elapse(d)
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
		synctest.Wait()
		if seen.Len() != 1 {
			t.Errorf("logged %d times", seen.Len())
		}
		if st := c.Stats(); st != (fresh.Stats{Runs: 1, Failed: 1, Waiters: 1, Running: true, Promised: true, Wedged: true}) {
			t.Errorf("Stats = %+v", st)
		}
		elapse(time.Second)
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
		elapse(time.Minute)
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
		elapse(18 * time.Second) // returns 8 s late, whatever its context says
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
		elapse(time.Second)
		third := ask(t.Context(), c)
		if a := <-second; a != (answer{run: 2, took: 11 * time.Second}) {
			t.Errorf("second: %+v", a)
		}
		if a := <-third; a != (answer{run: 2, took: 9 * time.Second}) {
			t.Errorf("third, which shares it: %+v", a)
		}
		elapse(8 * time.Second) // to the second 19
		if a := <-ask(t.Context(), c); a != (answer{run: 3, took: 2 * time.Second}) {
			t.Errorf("fourth: %+v", a)
		}
		elapse(20 * time.Second)
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
		elapse(time.Minute)
		if st := c.Stats(); st != (fresh.Stats{Runs: 1, NeverStarted: 1}) {
			t.Errorf("Stats = %+v", st)
		}
	})
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

func TestTheLongestDurationsAreNoLimit(t *testing.T) {
	run(t, deaf(time.Hour), fresh.Config{Budget: math.MaxInt64, MinInterval: math.MaxInt64}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		ctx, leave := context.WithTimeout(t.Context(), 2*365*24*time.Hour)
		defer leave()
		elapse(time.Second)
		first, second := ask(t.Context(), c), ask(ctx, c)
		if a := <-first; a != (answer{run: 1, took: time.Hour}) {
			t.Errorf("caller of the run: %+v", a)
		}
		if a := <-second; a.err != context.DeadlineExceeded || a.took != 2*365*24*time.Hour-time.Second {
			t.Errorf("promised caller: %+v", a)
		}
	})
}

func TestAClockThatIsSetBackDelaysNothingThatIsNotPaced(t *testing.T) {
	mock := clock.NewMock()
	mock.Set(time.Unix(1e6, 0))
	c := fresh.New(list, fresh.Config{Clock: mock})
	defer c.Close()
	for _, now := range []int64{1e5, 1e6, 1e3, 0} {
		mock.Set(time.Unix(now, 0))
		if _, err := c.Do(t.Context(), "a"); err != nil {
			t.Errorf("at %d: %v", now, err)
		}
	}
	paced := fresh.New(list, fresh.Config{Clock: mock, MinInterval: time.Hour})
	defer paced.Close()
	mock.Set(time.Unix(-1e6, 0))
	if _, err := paced.Do(t.Context(), "a"); err != nil {
		t.Errorf("the first of all: %v", err)
	}
}
