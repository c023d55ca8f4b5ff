package sweep_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwell-go/keepwell/sweep"
)

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
		l.Nudge() // once more, at the last moment
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
