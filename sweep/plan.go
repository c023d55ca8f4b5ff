package sweep

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Plan describes a pass that judges objects of type S, and after that acts on those which are to be stopped or dropped. Fill one in
// for each pass; Subjects, Judge and, without DryRun, Act are required, so Run panics on the zero Plan. It is a value that Run
// does not change: if its functions may be called at once, so may Run.
//
// Of the objects that are idle or too old, each pass stops a few, the oldest first: the others will still be so in the next pass,
// and an engine may not stand many stops at once. Objects that are gone are dropped only if they are few. When much seems to be
// gone at once, it is likelier that something went wrong in looking; so above the cap nothing is dropped, until somebody has
// looked or raised it.
type Plan[S any] struct {
	Subjects iter.Seq[S]                                                       // walked once, before any is judged
	Judge    func(ctx context.Context, s S) (Verdict, string)                  // must be safe for concurrent use if Judges > 1
	Act      func(ctx context.Context, s S, v Verdict) (acted bool, err error) // acts if a new look, under a hold, says so; one at a time
	Since    func(s S) time.Time                                               // stops go oldest first by it; nil: in the order of Subjects

	Pace      int     // how many stops a pass may make, or, if it is more,
	PaceShare float64 // for how large a part of Subjects, with fractions counting as one more; both 0: 10 and 0.1
	Cap       int     // how many drops a pass may make, unless 0, and besides
	CapShare  float64 // for how large a part of Subjects, counted alike; 0: 0.5; 1 without a Cap: for all

	Judges int         // subjects that are judged at once; 0: 1
	DryRun bool        // report what would be done; Act is not called
	Logger *zap.Logger // told of a cap that was met; nil: nobody
}

// Finding is the verdict over one subject, and what became of it. The zero Finding is one that is kept, for no reason.
type Finding[S any] struct {
	Subject S
	Verdict Verdict
	Reason  string
	Due     bool  // within pace and cap: Act was called, or would have been but for DryRun
	Acted   bool  // Act acted
	Err     error // of Act; or of Judge or Since, if it panicked
}

// Report is the outcome of a Run, in numbers and object by object. The zero Report is that of a Plan without subjects.
type Report[S any] struct {
	Judged   int          // subjects judged
	Stopped  int          // stops made
	Dropped  int          // drops made
	Spared   int          // subjects on which Act chose not to act
	Failed   int          // subjects of which Judge or Since panicked, or Act failed
	Deferred int          // stops left to the next pass
	Capped   bool         // there were more drops than the cap allows: none was made
	Verdicts []Finding[S] // one a subject, in the order of Subjects
}

// Run makes the pass. If an error or a panic befalls one subject it goes on with the next: the error that it returns in the end wraps
// the first, and Verdicts has all. It ends early with ctx, and then returns its cause; if that is before all are judged,
// nothing is acted on. A cap that was met is no error: Report.Capped says so. A stop that failed or was spared does not use
// up the pace, so that what cannot be stopped does not keep the rest from being stopped. It panics if Subjects, Judge, or
// without DryRun Act is nil, on a negative number, and on a share over 1.
func (p Plan[S]) Run(ctx context.Context) (Report[S], error) {
	p.check()
	var r Report[S]
	for s := range p.Subjects {
		r.Verdicts = append(r.Verdicts, Finding[S]{Subject: s, Reason: "not judged: the pass ended before"})
	}
	r.Judged = p.judge(ctx, r.Verdicts)
	if ctx.Err() == nil {
		p.drop(ctx, &r)
		p.stop(ctx, &r)
	}
	var first error
	for _, f := range r.Verdicts {
		if f.Err != nil {
			r.Failed++
			first = cmp.Or(first, f.Err)
		}
	}
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	if first != nil {
		return r, fmt.Errorf("sweep: %d of %d subjects failed, the first: %w", r.Failed, len(r.Verdicts), first)
	}
	return r, nil
}

func (p *Plan[S]) check() {
	switch {
	case p.Subjects == nil || p.Judge == nil:
		panic("sweep: Plan without Subjects or Judge")
	case p.Act == nil && !p.DryRun:
		panic("sweep: Plan without Act that is no DryRun")
	case p.Pace < 0 || p.Cap < 0 || p.Judges < 0:
		panic(fmt.Sprintf("sweep: negative Pace %d, Cap %d or Judges %d", p.Pace, p.Cap, p.Judges))
	case !isShare(p.PaceShare) || !isShare(p.CapShare):
		panic(fmt.Sprintf("sweep: PaceShare %v or CapShare %v is not within [0, 1]", p.PaceShare, p.CapShare))
	}
}

func isShare(f float64) bool { return f >= 0 && f <= 1 }

// judge fills in the verdicts, and returns how many.
func (p *Plan[S]) judge(ctx context.Context, all []Finding[S]) (judged int) {
	slots := make(chan struct{}, max(1, p.Judges))
	var wg sync.WaitGroup
	for i := range all {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		f := &all[i]
		judged++
		wg.Go(func() { // ends with Judge; awaited below
			defer func() { <-slots }()
			guarded("Judge", &f.Err, func() error {
				v, reason := p.Judge(ctx, f.Subject)
				f.Verdict, f.Reason = v, reason
				return nil
			})
		})
	}
	wg.Wait()
	return judged
}

// drop makes all drops or, above the cap, none.
func (p *Plan[S]) drop(ctx context.Context, r *Report[S]) {
	var drops []*Finding[S]
	for i := range r.Verdicts {
		if f := &r.Verdicts[i]; f.Verdict == Drop {
			drops = append(drops, f)
		}
	}
	most := p.dropsAllowed(len(r.Verdicts))
	if r.Capped = len(drops) > most; r.Capped {
		if p.Logger != nil {
			p.Logger.Warn("sweep: more is gone than the cap allows, nothing is dropped",
				zap.Int("gone", len(drops)), zap.Int("cap", most), zap.Int("subjects", len(r.Verdicts)))
		}
		return
	}
	for _, f := range drops {
		if p.act(ctx, r, f) {
			r.Dropped++
		}
	}
}

// stop makes stops, oldest first, until the pace is reached.
func (p *Plan[S]) stop(ctx context.Context, r *Report[S]) {
	stops := p.oldestFirst(r.Verdicts)
	left := p.stopsAllowed(len(r.Verdicts))
	for i, f := range stops {
		if left == 0 || ctx.Err() != nil {
			r.Deferred = len(stops) - i
			return
		}
		acted := p.act(ctx, r, f.Finding)
		if acted {
			r.Stopped++
		}
		if acted || p.DryRun {
			left--
		}
	}
}

// aged is a finding and how old its subject is.
type aged[S any] struct {
	*Finding[S]
	since time.Time
}

// oldestFirst returns the stops, without those whose age cannot be told.
func (p *Plan[S]) oldestFirst(all []Finding[S]) []aged[S] {
	var stops []aged[S]
	for i := range all {
		f := aged[S]{Finding: &all[i]}
		if !f.Verdict.stops() {
			continue
		}
		if p.Since != nil {
			guarded("Since", &f.Err, func() error {
				f.since = p.Since(f.Subject)
				return nil
			})
		}
		if f.Err == nil {
			stops = append(stops, f)
		}
	}
	slices.SortStableFunc(stops, func(a, b aged[S]) int { return a.since.Compare(b.since) })
	return stops
}

// act acts on one finding, and reports whether anything was done.
func (p *Plan[S]) act(ctx context.Context, r *Report[S], f *Finding[S]) bool {
	if ctx.Err() != nil {
		return false
	}
	f.Due = true
	if p.DryRun {
		return false
	}
	guarded("Act", &f.Err, func() (err error) {
		f.Acted, err = p.Act(ctx, f.Subject, f.Verdict)
		return err
	})
	if !f.Acted && f.Err == nil {
		r.Spared++
	}
	return f.Acted
}

// dropsAllowed returns the cap for known subjects.
func (p *Plan[S]) dropsAllowed(known int) int {
	most := share(cmp.Or(p.CapShare, 0.5), known)
	if p.Cap > 0 {
		most = min(most, p.Cap)
	}
	return most
}

// stopsAllowed returns the pace for known subjects.
func (p *Plan[S]) stopsAllowed(known int) int {
	if p.Pace == 0 && p.PaceShare == 0 {
		return max(10, share(0.1, known))
	}
	return max(p.Pace, share(p.PaceShare, known))
}

// share returns f of n, rounded up; 0.1 of 30 is 3, though the product in binary is a little more.
func share(f float64, n int) int { return int(math.Ceil(f*float64(n) - 1e-9)) }

// guarded sets err to the error of work, also if work panics or calls runtime.Goexit, which goes on to end the goroutine.
func guarded(what string, err *error, work func() error) {
	*err = fmt.Errorf("sweep: %s called runtime.Goexit", what) // unless work returns or panics
	defer func() {
		if p := recover(); p != nil {
			*err = panicError(what, p)
		}
	}()
	*err = work()
}
