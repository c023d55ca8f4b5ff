package sweep_test

import (
	"context"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/keepwell-go/keepwell/sweep"
)

func TestAClockThatJumpsGivesOneTick(t *testing.T) { // R41
	synctest.Test(t, func(t *testing.T) {
		var offset atomic.Int64
		pass, n := counting()
		l := sweep.New(pass, sweep.Config{Every: time.Second, Clock: jumpy{clock.New(), &offset}})
		running(t, l)
		for i, jump := range []time.Duration{time.Hour, -48 * time.Hour, 1000 * time.Hour} {
			offset.Add(int64(jump))
			after(time.Second)
			ran(t, n, int64(i+1))
		}
	})
}

func TestALongestPeriodIsNotMadeAnImmediateOneByItsJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pass, n := counting()
		for range 20 {
			running(t, sweep.New(pass, sweep.Config{Every: math.MaxInt64, Jitter: 0.9}))
		}
		after(time.Hour)
		ran(t, n, 0)
	})
}

// stall is a log that does not come back for a while, which stalls whoever writes to it.
type stall struct{ zapcore.Core }

func (s stall) Enabled(zapcore.Level) bool { return true }

func (s stall) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	time.Sleep(5500 * time.Millisecond)
	return ce
}

func TestAStallOfManyPeriodsGivesOneTick(t *testing.T) { // R41
	synctest.Test(t, func(t *testing.T) {
		b := newBlocked()
		l := sweep.New(b.pass, sweep.Config{Every: time.Second, Budget: time.Hour, Logger: zap.New(stall{zapcore.NewNopCore()})})
		running(t, l)
		after(7 * time.Second) // a tick at 1 s; at 2 s a skip, whose warning takes until 7.5 s
		b.end <- fine
		after(900 * time.Millisecond)
		count(t, l, "passes 2 skipped 1 failed 0 panicked 0")
		after(500 * time.Millisecond)
		count(t, l, "passes 2 skipped 1 failed 0 panicked 0")
		b.end <- fine
	})
}

func TestCloseWaitsForARunThatIsBusyLogging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := sweep.New(func(ctx context.Context) error { <-ctx.Done(); return nil },
			sweep.Config{Every: time.Second, Budget: time.Hour, Logger: zap.New(stall{zapcore.NewNopCore()})})
		start := time.Now()
		go func() { _ = l.Run(context.Background()) }()
		after(3 * time.Second) // a tick at 1 s; at 2 s a skip, whose warning takes until 7.5 s
		l.Close()
		if took := time.Since(start); took != 7500*time.Millisecond {
			t.Errorf("Close returned after %v, want 7.5s", took)
		}
	})
}

func TestJitterKeepsEachWaitWithinItsBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		start := time.Now()
		l := sweep.New(func(context.Context) error { at = append(at, time.Now()); return nil },
			sweep.Config{Every: 10 * time.Second, Jitter: 0.2})
		running(t, l)
		after(time.Hour)
		early, late := 0, 0
		for _, tick := range at {
			wait := tick.Sub(start)
			start = tick
			switch {
			case wait < 8*time.Second || wait > 12*time.Second:
				t.Fatalf("a wait of %v", wait)
			case wait < 9*time.Second:
				early++
			case wait > 11*time.Second:
				late++
			}
		}
		if early < 30 || late < 30 || len(at) < 330 || len(at) > 390 {
			t.Errorf("of %d waits %d were short and %d long", len(at), early, late)
		}
	})
}

func TestTheBudgetIsOnePeriodUnlessSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for budget, want := range map[time.Duration]time.Duration{0: 7 * time.Second, time.Second: time.Second} {
			var got time.Duration
			l := sweep.New(func(ctx context.Context) error {
				start := time.Now()
				<-ctx.Done()
				got = time.Since(start)
				return ctx.Err()
			}, sweep.Config{Every: 7 * time.Second, Budget: budget})
			if err := l.TryRun(t.Context()); err != context.DeadlineExceeded || got != want {
				t.Errorf("a budget of %v ended the pass after %v with %v", budget, got, err)
			}
		}
	})
}

func TestAPassOverItsBudgetThatFailsIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, lines := observed()
		l := sweep.New(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, sweep.Config{Logger: log})
		_ = l.TryRun(t.Context())
		if got := lines(); len(got) != 1 || got[0] != "warn sweep: pass failed" {
			t.Errorf("logged %q", got)
		}
	})
}

func TestAMockClockDrivesTheLoop(t *testing.T) {
	mock := clock.NewMock()
	begun := make(chan time.Time, 1)
	l := sweep.New(func(context.Context) error { begun <- mock.Now(); return nil }, sweep.Config{Clock: mock})
	l.Nudge()
	done := make(chan error)
	go func() { done <- l.Run(context.Background()) }()
	<-begun // so that the ticker is set
	for i := range 3 {
		for l.Stats().Running {
			runtime.Gosched()
		}
		mock.Add(time.Minute)
		if got, want := <-begun, time.Unix(0, 0).Add(time.Duration(i+1)*time.Minute); !got.Equal(want) {
			t.Errorf("pass %d began at %v, want %v", i+1, got, want)
		}
	}
	l.Close()
	if err := <-done; err != sweep.ErrClosed {
		t.Errorf("Run = %v", err)
	}
	if end := mock.Now(); !mock.WaitForAllTimers().Equal(end) {
		t.Error("a timer has outlived Run and its passes")
	}
}

// contexts is a clock that counts the contexts it made and that were not cancelled.
type contexts struct {
	clock.Clock
	open *atomic.Int64
}

func (c contexts) WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	c.open.Add(1)
	ctx, cancel := c.Clock.WithTimeout(parent, d)
	return ctx, sync.OnceFunc(func() { cancel(); c.open.Add(-1) })
}

func TestNoContextOutlivesItsPassOrItsSkip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Int64
		b := newBlocked()
		l := sweep.New(b.pass, sweep.Config{Every: time.Second, Budget: time.Hour, Clock: contexts{clock.New(), &open}})
		running(t, l)
		after(5 * time.Second)
		if got := open.Load(); got != 1 {
			t.Errorf("%d contexts are open during a pass that was met by four ticks, want 1", got)
		}
		l.Pause(time.Now().Add(time.Minute))
		b.end <- fine
		after(5 * time.Second)
		if got := open.Load(); got != 0 {
			t.Errorf("%d contexts are open after the pass", got)
		}
	})
}
