package sweep_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

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

func TestDropsAboveTheCapAreNotMade(t *testing.T) { // R90
	log, lines := observed()
	f := of(100, sweep.Drop, 40, 51)
	p := f.plan()
	p.CapShare, p.Logger = 0.1, log
	sums(t, p, "judged 100 stopped 0 dropped 0 spared 0 failed 0 deferred 0 capped")
	if len(f.acted) != 0 {
		t.Errorf("acted on %v", f.acted)
	}
	if got := lines(); len(got) != 1 || !strings.HasPrefix(got[0], "warn sweep: more is gone than the cap allows") {
		t.Errorf("logged %q", got)
	}
	f.verdicts[40] = sweep.Keep
	sums(t, p, "judged 100 stopped 0 dropped 10 spared 0 failed 0 deferred 0")
	if got := lines(); len(got) != 0 {
		t.Errorf("logged %q", got)
	}
}

func TestStopsArePacedUntilDone(t *testing.T) { // R90
	f := of(100, sweep.StopIdle, 0, 100)
	for left := 90; left >= 0; left -= 10 {
		sums(t, f.plan(), fmt.Sprintf("judged 100 stopped 10 dropped 0 spared 0 failed 0 deferred %d", left))
	}
	sums(t, f.plan(), "judged 100 stopped 0 dropped 0 spared 0 failed 0 deferred 0")
	sums(t, of(1, sweep.StopExpired, 0, 1).plan(), "judged 1 stopped 1 dropped 0 spared 0 failed 0 deferred 0")
}

func TestAFailedStopIsTriedAgainInTheNextPass(t *testing.T) { // R45, R46
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
