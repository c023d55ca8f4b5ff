package sweep_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/sweep"
)

// One pass at a time, however it is asked for. A pass that fails frees the way for the next.
func ExampleLoop() {
	begun, end := make(chan struct{}, 1), make(chan error)
	loop := sweep.New(func(ctx context.Context) error {
		begun <- struct{}{}
		return <-end
	}, sweep.Config{Every: time.Minute})

	var wg sync.WaitGroup
	wg.Go(func() { fmt.Println(loop.Run(context.Background())) })
	loop.Nudge() // a first pass now, not only after a minute
	<-begun

	fmt.Println(loop.TryRun(context.Background())) // asked for by a person, while the first pass runs
	loop.Nudge()                                   // asked for by an event: to be answered by a pass after this one
	end <- errors.New("the engine does not answer")
	<-begun
	end <- nil
	loop.Close()
	wg.Wait()
	fmt.Println("passes:", loop.Stats().Passes, "failed:", loop.Stats().Failed)
	// Output:
	// sweep: a pass is running
	// sweep: closed
	// passes: 2 failed: 1
}

// A pass over three sandboxes: judge all, then act on those whose verdict says so, at the pass's pace. Act is handed a
// verdict that is a moment old, so it takes its hold and judges again: here a request has come in by then.
func ExamplePlan() {
	type Sandbox struct {
		ID     string
		Busy   bool
		Age    time.Duration
		Active sweep.Activity
	}
	now := clock.NewMock()
	idleFor := func(d time.Duration) sweep.Activity { return sweep.Activity{Clock: now, Start: now.Now().Add(-d)} }
	sandboxes := []*Sandbox{
		{ID: "build", Busy: true, Age: 30 * time.Hour, Active: idleFor(time.Hour)},
		{ID: "shell", Age: 2 * time.Hour, Active: idleFor(time.Hour)},
		{ID: "draft", Age: 3 * time.Hour, Active: idleFor(time.Hour)},
	}
	judge := func(_ context.Context, s *Sandbox) (sweep.Verdict, string) {
		return sweep.Judge(sweep.Facts{
			Reachable: true, Busy: s.Busy || s.Active.Pins() > 0,
			Age: s.Age, TTL: 24 * time.Hour,
			Idle: s.Active.Idle(), IdleTimeout: 30 * time.Minute,
		})
	}
	act := func(ctx context.Context, s *Sandbox, v sweep.Verdict) (bool, error) {
		if s.ID == "draft" {
			defer s.Active.Begin()(true) // a request, between the verdict and the hold
		}
		if again, _ := judge(ctx, s); again != v {
			return false, nil
		}
		return true, nil // stop it
	}

	report, err := sweep.Plan[*Sandbox]{Subjects: slices.Values(sandboxes), Judge: judge, Act: act}.Run(context.Background())
	for _, f := range report.Verdicts {
		fmt.Printf("%s: %v (%s), done: %v\n", f.Subject.ID, f.Verdict, f.Reason, f.Acted)
	}
	fmt.Println("stopped:", report.Stopped, "spared:", report.Spared, err)
	// Output:
	// build: keep (busy), done: false
	// shell: stop, idle (idle: for 1h0m0s, over the timeout of 30m0s), done: true
	// draft: stop, idle (idle: for 1h0m0s, over the timeout of 30m0s), done: false
	// stopped: 1 spared: 1 <nil>
}
