package sweep_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/sweep"
)

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

func TestTheOldestAreStoppedFirst(t *testing.T) { // R90
	f := of(5, sweep.StopIdle, 0, 5)
	p := f.plan()
	p.Since = func(i int) time.Time { return time.Unix(int64([]int{30, 10, 40, 10, 20}[i]), 0) }
	p.Pace = 4
	sums(t, p, "judged 5 stopped 4 dropped 0 spared 0 failed 0 deferred 1")
	if got := fmt.Sprint(f.acted); got != "[1 3 4 0]" {
		t.Errorf("stopped %s, want the oldest first, and of equals the first first", got)
	}
}

func TestWhatCannotBeStoppedDoesNotHoldUpTheRest(t *testing.T) { // R90: paced, never blocked
	f := of(30, sweep.StopIdle, 0, 30)
	f.act = func(i int) (bool, error) {
		switch {
		case i < 15:
			return false, errPass
		case i < 25:
			return false, nil
		}
		return true, nil
	}
	p := f.plan()
	p.Pace = 3
	r, err := p.Run(t.Context())
	report(t, r, "judged 30 stopped 3 dropped 0 spared 10 failed 15 deferred 2")
	if want := "sweep: 15 of 30 subjects failed, the first: the list failed"; err == nil || err.Error() != want {
		t.Errorf("Run = %v, want %s", err, want)
	}
}

func TestSharesAreRoundedUp(t *testing.T) {
	for _, c := range []struct {
		subjects, gone int
		capShare       float64
		cap, dropped   int
	}{
		{1, 1, 0, 0, 1}, {2, 2, 0, 0, 0}, {3, 2, 0, 0, 2}, // half by default
		{30, 3, 0.1, 0, 3}, {30, 4, 0.1, 0, 0}, {31, 4, 0.1, 0, 4}, // 0.1 x 30 is a little more than 3
		{10, 10, 1, 0, 10}, {10, 10, 1, 9, 0}, {10, 5, 0, 5, 5}, {100, 6, 0, 5, 0},
	} {
		p := of(c.subjects, sweep.Drop, 0, c.gone).plan()
		p.CapShare, p.Cap = c.capShare, c.cap
		r, err := p.Run(t.Context())
		if err != nil || r.Dropped != c.dropped || r.Capped != (c.dropped == 0) {
			t.Errorf("%+v: dropped %d, capped %v, %v", c, r.Dropped, r.Capped, err)
		}
	}
	for _, c := range []struct {
		subjects, pace int
		paceShare      float64
		stopped        int
	}{
		{9, 0, 0, 9}, {100, 0, 0, 10}, {101, 0, 0, 11}, {300, 0, 0, 30}, // the larger of 10 and a tenth by default
		{100, 3, 0, 3}, {100, 0, 0.02, 2}, {100, 3, 0.02, 3}, {100, 3, 0.04, 4}, {100, 0, 1, 100},
	} {
		p := of(c.subjects, sweep.StopExpired, 0, c.subjects).plan()
		p.Pace, p.PaceShare = c.pace, c.paceShare
		sums(t, p, fmt.Sprintf("judged %d stopped %d dropped 0 spared 0 failed 0 deferred %d", c.subjects, c.stopped, c.subjects-c.stopped))
	}
}

func TestADryRunSaysWhatWouldBeDoneAndDoesNothing(t *testing.T) { // R90
	f := of(20, sweep.StopIdle, 0, 12)
	f.verdicts[19] = sweep.Drop
	p := f.plan()
	p.DryRun, p.Act = true, nil
	r := sums(t, p, "judged 20 stopped 0 dropped 0 spared 0 failed 0 deferred 2")
	due := 0
	for _, v := range r.Verdicts {
		if v.Due {
			due++
		}
		if v.Acted || v.Reason != fmt.Sprint("reason ", v.Subject) {
			t.Errorf("found %+v", v)
		}
	}
	if due != 11 || !r.Verdicts[19].Due || r.Verdicts[10].Due {
		t.Errorf("%d are due, want ten stops and one drop", due)
	}
	p.Cap, p.CapShare = 1, 1
	f.verdicts[18] = sweep.Drop
	if r := sums(t, p, "judged 20 stopped 0 dropped 0 spared 0 failed 0 deferred 2 capped"); r.Verdicts[18].Due || r.Verdicts[19].Due {
		t.Error("capped drops are due")
	}
}
