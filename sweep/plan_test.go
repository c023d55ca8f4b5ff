package sweep_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/sweep"
)

// fleet is what plans of the tests sweep: objects by number, and what is to be said of each.
type fleet struct {
	verdicts map[int]sweep.Verdict
	acted    []int
	act      func(int) (bool, error) // nil: acts
}

// of returns a fleet of n objects, of which those in [from, to) are judged as v.
func of(n int, v sweep.Verdict, from, to int) *fleet {
	f := &fleet{verdicts: make(map[int]sweep.Verdict)}
	for i := range n {
		f.verdicts[i] = sweep.Keep
		if i >= from && i < to {
			f.verdicts[i] = v
		}
	}
	return f
}

func (f *fleet) plan() sweep.Plan[int] {
	ids := make([]int, 0, len(f.verdicts))
	for i := range len(f.verdicts) {
		ids = append(ids, i)
	}
	return sweep.Plan[int]{
		Subjects: slices.Values(ids),
		Judge:    func(_ context.Context, i int) (sweep.Verdict, string) { return f.verdicts[i], fmt.Sprint("reason ", i) },
		Act: func(_ context.Context, i int, v sweep.Verdict) (bool, error) {
			if v != f.verdicts[i] || v == sweep.Keep {
				return false, fmt.Errorf("acting on %d as %v", i, v)
			}
			f.acted = append(f.acted, i)
			if f.act != nil {
				return f.act(i)
			}
			f.verdicts[i] = sweep.Keep
			return true, nil
		},
	}
}

// sums fails the test unless the report of p reads want and its error is nil.
func sums(t *testing.T, p sweep.Plan[int], want string) sweep.Report[int] {
	t.Helper()
	r, err := p.Run(t.Context())
	if err != nil {
		t.Errorf("Run = %v", err)
	}
	report(t, r, want)
	return r
}

func report(t *testing.T, r sweep.Report[int], want string) {
	t.Helper()
	got := fmt.Sprintf("judged %d stopped %d dropped %d spared %d failed %d deferred %d", r.Judged, r.Stopped, r.Dropped, r.Spared, r.Failed, r.Deferred)
	if r.Capped {
		got += " capped"
	}
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAFailedStopIsTriedAgainInTheNextPass(t *testing.T) { // R46
	f := of(3, sweep.StopExpired, 1, 2)
	f.act = func(int) (bool, error) { return false, errPass }
	r, err := f.plan().Run(t.Context())
	report(t, r, "judged 3 stopped 0 dropped 0 spared 0 failed 1 deferred 0")
	if want := "sweep: 1 of 3 subjects failed, the first: the list failed"; !errors.Is(err, errPass) || err.Error() != want {
		t.Errorf("Run = %v, want %s", err, want)
	}
	if r.Verdicts[1].Err != errPass || !r.Verdicts[1].Due || r.Verdicts[1].Acted {
		t.Errorf("found %+v", r.Verdicts[1])
	}
	f.act = nil
	sums(t, f.plan(), "judged 3 stopped 1 dropped 0 spared 0 failed 0 deferred 0")
}

// A verdict is a moment old when it is acted on: Act takes the hold, judges again, and spares what has become busy. // R91
func TestAVerdictIsTakenAgainUnderTheHold(t *testing.T) {
	mock := clock.NewMock()
	boxes := []*sweep.Activity{{Clock: mock, Start: mock.Now()}, {Clock: mock, Start: mock.Now()}}
	mock.Add(time.Hour)
	judge := func(_ context.Context, a *sweep.Activity) (sweep.Verdict, string) {
		return sweep.Judge(sweep.Facts{Reachable: true, Busy: a.Pins() > 0, Idle: a.Idle(), IdleTimeout: time.Minute})
	}
	var stopped []*sweep.Activity
	r, err := sweep.Plan[*sweep.Activity]{
		Subjects: slices.Values(boxes),
		Judge:    judge,
		Act: func(ctx context.Context, a *sweep.Activity, v sweep.Verdict) (bool, error) {
			if len(stopped) == 0 {
				boxes[1].Begin() // a request comes in while the first is being stopped
			}
			if again, _ := judge(ctx, a); again != v {
				return false, nil
			}
			stopped = append(stopped, a)
			return true, nil
		},
	}.Run(t.Context())
	if err != nil || r.Stopped != 1 || r.Spared != 1 || len(stopped) != 1 || stopped[0] != boxes[0] {
		t.Errorf("Run = %v, stopped %d, spared %d", err, r.Stopped, r.Spared)
	}
	if f := r.Verdicts[1]; f.Verdict != sweep.StopIdle || !f.Due || f.Acted || f.Err != nil {
		t.Errorf("found %+v", f)
	}
}

func TestTroubleWithOneSubjectDoesNotEndThePass(t *testing.T) {
	f := of(4, sweep.StopIdle, 0, 4)
	f.act = func(i int) (bool, error) {
		if i == 2 {
			panic("no such engine")
		}
		return true, nil
	}
	p := f.plan()
	judge := p.Judge
	p.Judge = func(ctx context.Context, i int) (sweep.Verdict, string) {
		switch i {
		case 0:
			panic(errPass)
		case 1:
			runtime.Goexit()
		}
		return judge(ctx, i)
	}
	r, err := p.Run(t.Context())
	report(t, r, "judged 4 stopped 1 dropped 0 spared 0 failed 3 deferred 0")
	if want := "sweep: 3 of 4 subjects failed, the first: sweep: Judge panicked: the list failed"; !errors.Is(err, errPass) || err.Error() != want {
		t.Errorf("Run = %v, want %s", err, want)
	}
	for i, want := range []string{"sweep: Judge panicked: the list failed", "sweep: Judge called runtime.Goexit", "sweep: Act panicked: no such engine", "<nil>"} {
		if got := r.Verdicts[i].Err; fmt.Sprint(got) != want {
			t.Errorf("of subject %d: %v, want %s", i, got, want)
		}
	}
}

func TestAnAgeThatCannotBeToldIsTroubleWithOneSubjectOnly(t *testing.T) {
	f := of(4, sweep.StopIdle, 0, 4)
	p := f.plan()
	asked := 0
	p.Since = func(i int) time.Time {
		if asked++; i == 2 {
			panic(errPass)
		}
		return time.Unix(int64(-i), 0)
	}
	r, err := p.Run(t.Context())
	report(t, r, "judged 4 stopped 3 dropped 0 spared 0 failed 1 deferred 0")
	if !slices.Equal(f.acted, []int{3, 1, 0}) || asked != 4 {
		t.Errorf("stopped %v, and asked for %d ages", f.acted, asked)
	}
	if want := "sweep: 1 of 4 subjects failed, the first: sweep: Since panicked: the list failed"; !errors.Is(err, errPass) || err.Error() != want {
		t.Errorf("Run = %v, want %s", err, want)
	}
	if f := r.Verdicts[2]; f.Due || f.Acted || f.Err == nil {
		t.Errorf("found %+v", f)
	}
}

func TestAPassThatEndsWhileJudgingActsOnNothing(t *testing.T) {
	why := errors.New("over budget")
	ctx, cancel := context.WithCancelCause(t.Context())
	f := of(5, sweep.Drop, 0, 1)
	p := f.plan()
	judge := p.Judge
	p.Judge = func(ctx context.Context, i int) (sweep.Verdict, string) {
		if i == 2 {
			cancel(why)
		}
		return judge(ctx, i)
	}
	r, err := p.Run(ctx)
	report(t, r, "judged 3 stopped 0 dropped 0 spared 0 failed 0 deferred 0")
	if err != why || len(f.acted) != 0 || r.Verdicts[2].Reason != "reason 2" || r.Verdicts[3].Reason != "not judged: the pass ended before" {
		t.Errorf("Run = %v, acted on %v, found %+v", err, f.acted, r.Verdicts)
	}
}

func TestAPassThatEndsWhileActingLeavesTheRest(t *testing.T) {
	for name, c := range map[string]struct {
		verdict sweep.Verdict
		want    string
	}{
		"stops": {sweep.StopIdle, "judged 5 stopped 2 dropped 0 spared 0 failed 0 deferred 3"},
		"drops": {sweep.Drop, "judged 5 stopped 0 dropped 2 spared 0 failed 0 deferred 0"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			f := of(5, c.verdict, 0, 5)
			f.act = func(i int) (bool, error) {
				if i == 1 {
					cancel()
				}
				return true, nil
			}
			p := f.plan()
			p.CapShare = 1
			r, err := p.Run(ctx)
			report(t, r, c.want)
			if err != context.Canceled || len(f.acted) != 2 || r.Verdicts[2].Due {
				t.Errorf("Run = %v, acted on %v", err, f.acted)
			}
		})
	}
}

func TestAsManyAreJudgedAtOnceAsAskedFor(t *testing.T) {
	for judges, want := range map[int]int64{0: 1, 1: 1, 3: 3} {
		synctest.Test(t, func(t *testing.T) {
			var now, most atomic.Int64
			p := of(10, sweep.Keep, 0, 0).plan()
			p.Judges = judges
			p.Judge = func(context.Context, int) (sweep.Verdict, string) {
				most.Store(max(most.Load(), now.Add(1)))
				time.Sleep(time.Second)
				now.Add(-1)
				return sweep.Keep, ""
			}
			start := time.Now()
			sums(t, p, "judged 10 stopped 0 dropped 0 spared 0 failed 0 deferred 0")
			if took := time.Since(start); most.Load() != want || took != time.Duration((10+want-1)/want)*time.Second {
				t.Errorf("with %d Judges: %d at once, in %v", judges, most.Load(), took)
			}
		})
	}
}

func TestAPlanOverNothingDoesNothing(t *testing.T) {
	sums(t, of(0, 0, 0, 0).plan(), "judged 0 stopped 0 dropped 0 spared 0 failed 0 deferred 0")
}
