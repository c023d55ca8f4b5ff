package sweep_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keepwell-go/keepwell/sweep"
)

// everyFacts yields all facts with durations of -1 to 2: enough for each to be below, at and above each other.
func everyFacts(yield func(sweep.Facts) bool) {
	for n := range 1 << 15 {
		bits := n
		yes := func() bool { bit := bits & 1; bits >>= 1; return bit == 1 }
		duration := func() time.Duration { d := bits&3 - 1; bits >>= 2; return time.Duration(d) }
		if !yield(sweep.Facts{
			Pinned: yes(), Held: yes(), Busy: yes(), Reachable: yes(), Gone: yes(),
			Age: duration(), Grace: duration(), TTL: duration(), Idle: duration(), IdleTimeout: duration(),
		}) {
			return
		}
	}
}

// More activity, or more protection, never turns a Keep into anything else. // R43
func TestRaisingActivityNeverTurnsKeepIntoStop(t *testing.T) {
	raise := map[string]func(*sweep.Facts){
		"pinned":       func(f *sweep.Facts) { f.Pinned = true },
		"held":         func(f *sweep.Facts) { f.Held = true },
		"busy":         func(f *sweep.Facts) { f.Busy = true },
		"less idle":    func(f *sweep.Facts) { f.Idle-- },
		"younger":      func(f *sweep.Facts) { f.Age-- },
		"more grace":   func(f *sweep.Facts) { f.Grace++ },
		"no TTL":       func(f *sweep.Facts) { f.TTL = 0 },
		"no timeout":   func(f *sweep.Facts) { f.IdleTimeout = 0 },
		"exists":       func(f *sweep.Facts) { f.Gone = false },
		"more TTL":     func(f *sweep.Facts) { f.TTL += min(1, max(0, f.TTL)) },
		"more timeout": func(f *sweep.Facts) { f.IdleTimeout += min(1, max(0, f.IdleTimeout)) },
	}
	for f := range everyFacts {
		if before, _ := sweep.Judge(f); before != sweep.Keep {
			continue
		}
		for name, by := range raise {
			if after, why := sweep.Judge(with(f, by)); after != sweep.Keep {
				t.Fatalf("%s: %+v was kept, and now: %v (%s)", name, f, after, why)
			}
		}
	}
}

// The verdict is that of the rules, taken one by one: what is idle or expired is stopped, and dropped is only what is gone. // R42, R43, R44, R45, R47
func TestJudgeFollowsTheRules(t *testing.T) {
	for f := range everyFacts {
		spared := f.Pinned || f.Held || f.Busy || f.Age < f.Grace
		expired := f.TTL > 0 && f.Age > f.TTL
		idle := f.Reachable && f.IdleTimeout > 0 && f.Idle > f.IdleTimeout
		want := sweep.Keep
		if !spared && !f.Reachable && f.Gone {
			want = sweep.Drop
		}
		if !spared && idle {
			want = sweep.StopIdle
		}
		if !spared && expired {
			want = sweep.StopExpired
		}
		if got, why := sweep.Judge(f); got != want || why == "" {
			t.Fatalf("%+v: %v (%s), want %v", f, got, why, want)
		}
	}
}

// subject is one object in the property of Plan: what is thought of it, and how acting on it goes.
type subject struct {
	id      int
	born    int
	verdict sweep.Verdict
	act     string
}

func drawSubjects(t *rapid.T) (all []subject) {
	for i := range rapid.IntRange(0, 60).Draw(t, "subjects") {
		all = append(all, subject{
			i, rapid.IntRange(0, 9).Draw(t, "born"),
			rapid.SampledFrom([]sweep.Verdict{sweep.Keep, sweep.StopIdle, sweep.StopExpired, sweep.Drop, 9}).Draw(t, "verdict"),
			rapid.SampledFrom([]string{"acts", "acts", "spares", "fails", "panics"}).Draw(t, "act"),
		})
	}
	return all
}

func (s subject) acts() (bool, error) {
	switch s.act {
	case "fails":
		return false, errPass
	case "panics":
		panic(errPass)
	}
	return s.act == "acts", nil
}

// Whatever the verdicts, and however acting goes: drops are all tried or, above the cap, none; stops are tried oldest first,
// until as many were made as the pace allows and never more; each is tried once, and what is kept never. // R90, R46
func TestAPlanPacesStopsAndCapsDrops(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := drawSubjects(t)
		p := sweep.Plan[subject]{
			Subjects: slices.Values(all),
			Judge:    func(_ context.Context, s subject) (sweep.Verdict, string) { return s.verdict, s.act },
			Since:    func(s subject) time.Time { return time.Unix(int64(s.born), 0) },
			Pace:     rapid.IntRange(0, 12).Draw(t, "pace"), PaceShare: float64(rapid.IntRange(0, 10).Draw(t, "pace share")) / 10,
			Cap: rapid.IntRange(0, 12).Draw(t, "cap"), CapShare: float64(rapid.IntRange(0, 10).Draw(t, "cap share")) / 10,
			Judges: rapid.IntRange(0, 4).Draw(t, "judges"),
		}
		var tried []subject
		p.Act = func(_ context.Context, s subject, v sweep.Verdict) (bool, error) {
			if v != s.verdict {
				t.Fatalf("acting on %+v as %v", s, v)
			}
			tried = append(tried, s)
			return s.acts()
		}
		r, err := p.Run(context.Background())
		want, wantTried := simulate(p, all)
		if !slices.Equal(tried, wantTried) {
			t.Fatalf("tried %v, want %v", tried, wantTried)
		}
		for i, f := range r.Verdicts {
			if f.Due != slices.Contains(tried, all[i]) || f.Acted != (f.Due && f.Subject.act == "acts") || f.Subject != all[i] || f.Reason != all[i].act {
				t.Fatalf("found %+v of %+v", f, all[i])
			}
		}
		if (err != nil) != (r.Failed > 0) || err != nil && !errors.Is(err, errPass) {
			t.Fatalf("Run = %v, of %d failed", err, r.Failed)
		}
		if r.Verdicts = nil; fmt.Sprint(r) != fmt.Sprint(want) {
			t.Fatalf("report %+v, want %+v", r, want)
		}
	})
}

// simulate returns what ought to be tried, and the report.
func simulate(p sweep.Plan[subject], all []subject) (r sweep.Report[subject], tried []subject) {
	ceil := func(share float64) int { return int(math.Ceil(math.Round(share*10) * float64(len(all)) / 10)) }
	pace, most := max(p.Pace, ceil(p.PaceShare)), ceil(p.CapShare)
	if p.Pace == 0 && p.PaceShare == 0 {
		pace = max(10, ceil(0.1))
	}
	if p.CapShare == 0 {
		most = ceil(0.5)
	}
	if p.Cap > 0 {
		most = min(most, p.Cap)
	}
	var stops, drops []subject
	for _, s := range all {
		switch s.verdict {
		case sweep.StopIdle, sweep.StopExpired:
			stops = append(stops, s)
		case sweep.Drop:
			drops = append(drops, s)
		}
	}
	try := func(s subject, made *int) {
		tried = append(tried, s)
		switch s.act {
		case "acts":
			*made++
		case "spares":
			r.Spared++
		default:
			r.Failed++
		}
	}
	r.Judged, r.Capped = len(all), len(drops) > most
	if !r.Capped {
		for _, s := range drops {
			try(s, &r.Dropped)
		}
	}
	slices.SortStableFunc(stops, func(a, b subject) int { return a.born - b.born })
	for _, s := range stops {
		if r.Stopped < pace {
			try(s, &r.Stopped)
		} else {
			r.Deferred++
		}
	}
	return r, tried
}
