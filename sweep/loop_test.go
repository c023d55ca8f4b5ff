package sweep_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/keepwell-go/keepwell/sweep"
)

// counting returns a pass that counts its runs, and the count.
func counting() (func(context.Context) error, *int) {
	n := 0
	return func(context.Context) error { n++; return nil }, &n
}

// ran fails the test unless the pass ran want times.
func ran(t *testing.T, got *int, want int) {
	t.Helper()
	synctest.Wait()
	if *got != want {
		t.Errorf("%d passes, want %d", *got, want)
	}
}

func TestTheFirstTickComesAfterOnePeriodUnlessNudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pass, n := counting()
		l := sweep.New(pass, sweep.Config{})
		running(t, l)
		after(time.Minute - 1)
		ran(t, n, 0)
		after(1)
		ran(t, n, 1)

		pass, n = counting()
		l = sweep.New(pass, sweep.Config{})
		l.Nudge()
		l.Nudge()
		ran(t, n, 0)
		running(t, l)
		ran(t, n, 1)
		after(time.Minute)
		ran(t, n, 2)
	})
}

func TestABootPassThatFailsIsMadeGoodByTheNextTick(t *testing.T) { // R14
	synctest.Test(t, func(t *testing.T) {
		log, lines := observed()
		adopted, up := 0, false
		l := sweep.New(func(context.Context) error {
			if !up {
				return errPass
			}
			adopted++
			return nil
		}, sweep.Config{Logger: log})
		l.Nudge()
		running(t, l)
		count(t, l, "passes 1 skipped 0 failed 1 panicked 0")
		if got := lines(); len(got) != 1 || got[0] != "warn sweep: pass failed" {
			t.Errorf("logged %q", got)
		}
		up = true
		after(time.Minute)
		ran(t, &adopted, 1)
		if s := l.Stats(); s.LastErr != nil || !s.LastStart.Equal(time.Now()) || !s.LastEnd.Equal(time.Now()) {
			t.Errorf("of the last pass: %+v", s)
		}
	})
}

func TestADrainingTickListsNothingAndSweepsWhatIsKnown(t *testing.T) { // R4
	lists, draining, known := 0, true, []int{1}
	var judged []int
	l := sweep.New(func(ctx context.Context) error {
		if !draining {
			lists++
			known = append(known, 2) // ready, and unknown until a list finds it
		}
		_, err := sweep.Plan[int]{
			Subjects: slices.Values(known), DryRun: true,
			Judge: func(_ context.Context, n int) (sweep.Verdict, string) {
				judged = append(judged, n)
				return sweep.Keep, ""
			},
		}.Run(ctx)
		return err
	}, sweep.Config{})
	for _, draining = range []bool{true, false} {
		if err := l.TryRun(t.Context()); err != nil {
			t.Errorf("TryRun = %v", err)
		}
	}
	if got := fmt.Sprint(lists, known, judged); got != "1 [1 2] [1 1 2]" {
		t.Errorf("listed, known, judged: %s", got)
	}
}

func TestANudgeDuringAPassIsAnsweredByOnePassAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlocked()
		l := sweep.New(b.pass, sweep.Config{Every: time.Hour})
		running(t, l)
		l.Nudge()
		synctest.Wait()
		l.Nudge()
		l.Nudge()
		synctest.Wait()
		count(t, l, "passes 1 skipped 0 failed 0 panicked 0")
		b.end <- fine
		synctest.Wait()
		count(t, l, "passes 2 skipped 0 failed 0 panicked 0")
		b.end <- fine
		after(59 * time.Minute)
		count(t, l, "passes 2 skipped 0 failed 0 panicked 0")
	})
}

func TestAnyPassThatBeginsAnswersANudge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pass, n := counting()
		l := sweep.New(pass, sweep.Config{Every: time.Hour})
		l.Nudge()
		if err := l.TryRun(t.Context()); err != nil {
			t.Errorf("TryRun = %v", err)
		}
		running(t, l)
		ran(t, n, 1)
	})
}

func TestAPauseHoldsAllPassesUntilItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pass, n := counting()
		l := sweep.New(pass, sweep.Config{Every: time.Second})
		start := time.Now()
		running(t, l)
		l.Pause(start.Add(2500 * time.Millisecond))
		after(2500*time.Millisecond - 1)
		ran(t, n, 0)
		count(t, l, "passes 0 skipped 0 failed 0 panicked 0")
		err := l.TryRun(t.Context())
		want := "sweep: passes are paused until " + start.Add(2500*time.Millisecond).UTC().Format(time.RFC3339)
		if !errors.Is(err, sweep.ErrRunning) || errors.Is(err, sweep.ErrClosed) || err.Error() != want {
			t.Errorf("TryRun = %v, want %s", err, want)
		}
		after(1)
		if err := l.TryRun(t.Context()); err != nil { // at its very end
			t.Errorf("TryRun = %v", err)
		}
		after(500 * time.Millisecond)
		ran(t, n, 2)
	})
}

func TestANudgeIsKeptUntilThePauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pass, n := counting()
		l := sweep.New(pass, sweep.Config{Every: time.Hour})
		running(t, l)
		l.Pause(time.Now().Add(time.Minute))
		l.Nudge()
		after(time.Minute - 1)
		ran(t, n, 0)
		after(1)
		ran(t, n, 1)

		l.Nudge()
		synctest.Wait()
		l.Pause(time.Now().Add(2 * time.Minute))
		l.Nudge()
		synctest.Wait()
		l.Pause(time.Now().Add(time.Minute)) // the last call counts, be it for an earlier time
		after(time.Minute)
		ran(t, n, 3)
		l.Pause(time.Now().Add(time.Minute))
		l.Nudge()
		ran(t, n, 3)
		l.Pause(time.Time{})
		ran(t, n, 4)
	})
}

func TestAPauseDoesNotEndThePassThatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlocked()
		l := sweep.New(b.pass, sweep.Config{Every: time.Second, Budget: time.Hour})
		running(t, l)
		after(time.Second)
		l.Pause(time.Now().Add(time.Minute))
		after(10 * time.Second)
		if s := l.Stats(); !s.Running || s.Wedged || (<-b.begun).Err() != nil || s.Skipped != 0 {
			t.Errorf("stats %+v", s)
		}
		b.end <- fine
	})
}

func TestTryRunReturnsWhatThePassReturns(t *testing.T) {
	l := sweep.New(func(context.Context) error { return errPass }, sweep.Config{})
	if err := l.TryRun(t.Context()); err != errPass {
		t.Errorf("TryRun = %v, want %v", err, errPass)
	}
	count(t, l, "passes 1 skipped 0 failed 1 panicked 0")
}

func TestTheEndOfTheCallersContextEndsTheWaitNotThePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		b := newBlocked()
		l := sweep.New(b.pass, sweep.Config{Budget: time.Hour})
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "who"))
		got := make(chan error)
		go func() { got <- l.TryRun(ctx) }()
		pass := <-b.begun
		cancel()
		if err := <-got; err != context.Canceled {
			t.Errorf("TryRun = %v", err)
		}
		if pass.Err() != nil || pass.Value(key{}) != "who" || !l.Stats().Running {
			t.Errorf("the pass: context %v of %v, stats %+v", pass.Err(), pass.Value(key{}), l.Stats())
		}
		b.end <- fine
		synctest.Wait()
		if err := l.TryRun(ctx); err != context.Canceled {
			t.Errorf("TryRun = %v", err)
		}
		count(t, l, "passes 1 skipped 0 failed 0 panicked 0")
	})
}

func TestTheEndOfRunsContextCancelsThePassAndWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, lines := observed()
		why := errors.New("told to stop")
		b := newBlocked()
		l := sweep.New(b.pass, sweep.Config{Every: time.Second, Logger: log})
		for range 2 { // Run may be called again
			ctx, cancel := context.WithCancelCause(t.Context())
			got := make(chan error, 1)
			go func() { got <- l.Run(ctx) }()
			after(time.Second)
			cancel(why)
			synctest.Wait()
			if pass := <-b.begun; pass.Err() == nil || len(got) != 0 || !l.Stats().Wedged {
				t.Errorf("the pass's context: %v; Run has returned: %v; stats %+v", pass.Err(), len(got) > 0, l.Stats())
			}
			b.end <- fails
			if err := <-got; err != why {
				t.Errorf("Run = %v, want %v", err, why)
			}
		}
		count(t, l, "passes 2 skipped 0 failed 2 panicked 0")
		if got := lines(); len(got) != 0 {
			t.Errorf("logged %q of passes that were told to end", got)
		}
	})
}

func TestRunWhoseContextHasEndedStartsNothing(t *testing.T) {
	pass, n := counting()
	l := sweep.New(pass, sweep.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.Nudge()
	if err := l.Run(ctx); err != context.Canceled || *n != 0 {
		t.Errorf("Run = %v, after %d passes", err, *n)
	}
}

func TestCloseCancelsThePassAndWaitsForItAndForRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlocked()
		l := sweep.New(b.pass, sweep.Config{Every: time.Second, Budget: time.Hour})
		ran := make(chan error, 1)
		go func() { ran <- l.Run(context.Background()) }()
		after(time.Second)
		closed := make(chan struct{}, 2)
		for range 2 {
			go func() { l.Close(); closed <- struct{}{} }()
		}
		synctest.Wait()
		if (<-b.begun).Err() != context.Canceled || len(closed) != 0 || len(ran) != 0 {
			t.Errorf("%d Closes and %d Runs have returned before the pass", len(closed), len(ran))
		}
		l.Nudge()
		b.end <- fine
		<-closed
		<-closed
		if err := <-ran; err != sweep.ErrClosed {
			t.Errorf("Run = %v", err)
		}
		after(time.Hour)
		count(t, l, "passes 1 skipped 0 failed 0 panicked 0")
		if err := l.TryRun(t.Context()); err != sweep.ErrClosed {
			t.Errorf("TryRun = %v", err)
		}
		if err := l.Run(t.Context()); err != sweep.ErrClosed {
			t.Errorf("Run = %v", err)
		}
	})
}

func TestTryRunDuringCloseSaysClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlocked()
		l := sweep.New(b.pass, sweep.Config{})
		go func() { _ = l.TryRun(t.Context()) }()
		synctest.Wait()
		go l.Close()
		synctest.Wait()
		if err := l.TryRun(t.Context()); err != sweep.ErrClosed {
			t.Errorf("TryRun = %v", err)
		}
		b.end <- fine
	})
}

func TestCloseOfALoopThatNeverRanReturns(t *testing.T) {
	pass, _ := counting()
	l := sweep.New(pass, sweep.Config{})
	l.Close()
	l.Close()
}

func TestAClockThatJumpsGivesOneTick(t *testing.T) { // R41
	synctest.Test(t, func(t *testing.T) {
		var offset time.Duration
		pass, n := counting()
		l := sweep.New(pass, sweep.Config{Every: time.Second, Clock: jumpy{clock.New(), &offset}})
		running(t, l)
		for i, jump := range []time.Duration{time.Hour, -48 * time.Hour, 1000 * time.Hour} {
			offset += jump
			after(time.Second)
			ran(t, n, i+1)
		}
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
	begun := make(chan time.Time)
	l := sweep.New(func(context.Context) error { begun <- mock.Now(); return nil }, sweep.Config{Clock: mock})
	l.Nudge()
	done := make(chan error)
	go func() { done <- l.Run(context.Background()) }()
	<-begun // the ticker is set by now
	for i := range 3 {
		go mock.Add(time.Minute)
		if got, want := <-begun, time.Unix(0, 0).Add(time.Duration(i+1)*time.Minute); !got.Equal(want) {
			t.Errorf("pass %d began at %v, want %v", i+1, got, want)
		}
	}
	l.Close()
	if err := <-done; err != sweep.ErrClosed {
		t.Errorf("Run = %v", err)
	}
}

func TestNewRefusesWhatCannotBeMeant(t *testing.T) {
	pass, _ := counting()
	for want, f := range map[string]func(){
		"sweep: nil pass":                                          func() { sweep.New(nil, sweep.Config{}) },
		"sweep: negative Every -1ns or Budget 0s":                  func() { sweep.New(pass, sweep.Config{Every: -1}) },
		"sweep: negative Every 0s or Budget -1ns":                  func() { sweep.New(pass, sweep.Config{Budget: -1}) },
		"sweep: Jitter 1 is not within [0, 1)":                     func() { sweep.New(pass, sweep.Config{Jitter: 1}) },
		"sweep: Jitter -0.1 is not within [0, 1)":                  func() { sweep.New(pass, sweep.Config{Jitter: -0.1}) },
		"sweep: Jitter NaN is not within [0, 1)":                   func() { sweep.New(pass, sweep.Config{Jitter: math.NaN()}) },
		"sweep: Plan without Subjects or Judge":                    func() { _, _ = sweep.Plan[int]{}.Run(t.Context()) },
		"sweep: Plan without Act that is no DryRun":                func() { p := of(1, 0, 0, 0).plan(); p.Act = nil; _, _ = p.Run(t.Context()) },
		"sweep: negative Pace -1, Cap 0 or Judges 0":               func() { p := of(1, 0, 0, 0).plan(); p.Pace = -1; _, _ = p.Run(t.Context()) },
		"sweep: negative Pace 0, Cap -1 or Judges 0":               func() { p := of(1, 0, 0, 0).plan(); p.Cap = -1; _, _ = p.Run(t.Context()) },
		"sweep: negative Pace 0, Cap 0 or Judges -1":               func() { p := of(1, 0, 0, 0).plan(); p.Judges = -1; _, _ = p.Run(t.Context()) },
		"sweep: PaceShare 1.1 or CapShare 0 is not within [0, 1]":  func() { p := of(1, 0, 0, 0).plan(); p.PaceShare = 1.1; _, _ = p.Run(t.Context()) },
		"sweep: PaceShare 0 or CapShare -0.1 is not within [0, 1]": func() { p := of(1, 0, 0, 0).plan(); p.CapShare = -0.1; _, _ = p.Run(t.Context()) },
	} {
		panicsWith(t, want, f)
	}
}

func TestASecondRunIsMisuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pass, _ := counting()
		l := sweep.New(pass, sweep.Config{})
		running(t, l)
		panicsWith(t, "sweep: Run is running already", func() { _ = l.Run(t.Context()) })
	})
}

func panicsWith(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if got := fmt.Sprint(recover()); got != want {
			t.Errorf("panicked with %q, want %q", got, want)
		}
	}()
	f()
}

func TestARefusalDoesNotAllocate(t *testing.T) {
	b := newBlocked()
	l := sweep.New(b.pass, sweep.Config{})
	go func() { _ = l.TryRun(context.Background()) }()
	<-b.begun
	if got := testing.AllocsPerRun(100, func() {
		if l.TryRun(context.Background()) != sweep.ErrRunning {
			t.Fatal("not refused")
		}
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
	b.end <- fine
	l.Close()
}
