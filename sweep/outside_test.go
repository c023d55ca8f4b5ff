package sweep_test

import (
	"context"
	"iter"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keepwell-go/keepwell/sweep"
)

func TestNothingIsCalledUnderTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *sweep.Loop
		outside := func(what string) {
			for range 1000 { // another may have it for a moment
				if l.Unlocked() {
					return
				}
				runtime.Gosched()
			}
			t.Errorf("%s was called under the lock", what)
		}
		var logs atomic.Int64
		core, _ := observer.New(zap.DebugLevel)
		log := zap.New(core, zap.Hooks(func(zapcore.Entry) error { logs.Add(1); outside("Logger"); return nil }))
		ends := []func() error{fails, panics, exits}
		l = sweep.New(func(context.Context) error {
			outside("pass")
			time.Sleep(1500 * time.Millisecond)
			end := ends[0]
			ends = ends[1:]
			return end()
		}, sweep.Config{Every: time.Second, Budget: time.Hour, Logger: log})
		running(t, l)
		after(6500 * time.Millisecond) // passes from 1 s, 3 s and 5 s on, with a skipped tick in each
		if got := logs.Load(); got != 6 {
			t.Errorf("logged %d times, want once of each pass and of each skip", got)
		}
	})
}

func TestPassesOfRunSeeTheValuesOfItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "site"))
		var seen any
		l := sweep.New(func(ctx context.Context) error { seen = ctx.Value(key{}); return nil }, sweep.Config{})
		l.Nudge()
		var ran sync.WaitGroup
		ran.Go(func() { _ = l.Run(ctx) })
		synctest.Wait()
		cancel()
		ran.Wait()
		if seen != "site" {
			t.Errorf("the pass saw %v", seen)
		}
	})
}

// What yields the subjects may be a query, or good for one walk only.
func TestTheSubjectsAreWalkedOnceBeforeAnyIsJudged(t *testing.T) {
	p := of(3, sweep.StopIdle, 0, 3).plan()
	all, judge, walks, walking := p.Subjects, p.Judge, 0, false
	p.Subjects = iter.Seq[int](func(yield func(int) bool) {
		walks++
		walking = true
		all(yield)
		walking = false
	})
	p.Judge = func(ctx context.Context, i int) (sweep.Verdict, string) {
		if walking {
			t.Errorf("%d is judged during the walk", i)
		}
		return judge(ctx, i)
	}
	sums(t, p, "judged 3 stopped 3 dropped 0 spared 0 failed 0 deferred 0")
	if walks != 1 {
		t.Errorf("walked %d times, want 1", walks)
	}
}

func TestAPlanWhoseContextHasEndedJudgesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := of(3, sweep.Drop, 0, 1)
	r, err := f.plan().Run(ctx)
	report(t, r, "judged 0 stopped 0 dropped 0 spared 0 failed 0 deferred 0")
	if err != context.Canceled || len(f.acted) != 0 || len(r.Verdicts) != 3 {
		t.Errorf("Run = %v, acted on %v", err, f.acted)
	}
}
