package sweep_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwell-go/keepwell/sweep"
)

// counting returns a pass that counts its runs, and the count.
func counting() (func(context.Context) error, *atomic.Int64) {
	n := new(atomic.Int64)
	return func(context.Context) error { n.Add(1); return nil }, n
}

// ran fails the test unless the pass ran want times.
func ran(t *testing.T, count *atomic.Int64, want int64) {
	t.Helper()
	synctest.Wait()
	if got := count.Load(); got != want {
		t.Errorf("%d passes, want %d", got, want)
	}
}

func TestABootPassThatFailsIsMadeGoodByTheNextTick(t *testing.T) { // R14
	synctest.Test(t, func(t *testing.T) {
		log, lines := observed()
		var adopted atomic.Int64
		var up atomic.Bool
		l := sweep.New(func(context.Context) error {
			if !up.Load() {
				return errPass
			}
			adopted.Add(1)
			return nil
		}, sweep.Config{Logger: log})
		l.Nudge()
		running(t, l)
		count(t, l, "passes 1 skipped 0 failed 1 panicked 0")
		if got := lines(); len(got) != 1 || got[0] != "warn sweep: pass failed" {
			t.Errorf("logged %q", got)
		}
		up.Store(true)
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
	if err := l.Run(ctx); err != context.Canceled || n.Load() != 0 {
		t.Errorf("Run = %v, after %d passes", err, n.Load())
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

// Nobody but Close itself waits for a pass whose caller has left, while no Run is there.
func TestCloseWaitsForAPassThatNobodyWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlocked()
		l := sweep.New(b.pass, sweep.Config{Budget: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = l.TryRun(ctx) }()
		pass := <-b.begun
		cancel()
		closed := make(chan struct{}, 1)
		go func() { l.Close(); closed <- struct{}{} }()
		synctest.Wait()
		if pass.Err() != context.Canceled || len(closed) != 0 {
			t.Errorf("the pass's context: %v; Close has returned before it: %v", pass.Err(), len(closed) > 0)
		}
		b.end <- fine
		<-closed
	})
}

func TestCloseOfALoopThatNeverRanReturns(t *testing.T) {
	pass, _ := counting()
	l := sweep.New(pass, sweep.Config{})
	l.Close()
	l.Close()
}
