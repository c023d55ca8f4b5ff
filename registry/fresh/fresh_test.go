package fresh_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwell-go/keepwell/registry/fresh"
)

// source is work whose runs last a second each and answer with their number, unless play says otherwise.
type source struct {
	runs int
	keys [][]string // of each run, sorted
	play func(ctx context.Context, run int) error
}

func (s *source) work(ctx context.Context, keys []string) (int, error) {
	s.runs++
	run := s.runs
	slices.Sort(keys)
	s.keys = append(s.keys, keys)
	if s.play != nil {
		return run, s.play(ctx, run)
	}
	time.Sleep(time.Second)
	return run, nil
}

// answer is how one call of Do went.
type answer struct {
	run      int
	err      error
	panicked any
	took     time.Duration
}

// ask calls Do in its own goroutine and returns when that waits or has its answer.
func ask(ctx context.Context, c *fresh.Coalescer[string, int], keys ...string) <-chan answer {
	ch := make(chan answer, 1)
	begun := time.Now()
	go func() {
		var a answer
		defer func() {
			a.panicked = recover()
			a.took = time.Since(begun)
			ch <- a
		}()
		a.run, a.err = c.Do(ctx, keys...)
	}()
	synctest.Wait()
	return ch
}

// run runs body in a bubble of virtual time with a Coalescer of s.
func run(t *testing.T, s *source, cfg fresh.Config, body func(t *testing.T, c *fresh.Coalescer[string, int])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := fresh.New(s.work, cfg)
		defer c.Close()
		body(t, c)
	})
}

func TestCallersDuringARunShareTheFollowUpRun(t *testing.T) { // R5, R6
	s := &source{}
	run(t, s, fresh.Config{}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		first := ask(t.Context(), c, "a")
		time.Sleep(time.Second / 2)
		second, third := ask(t.Context(), c, "b"), ask(t.Context(), c, "a")
		if a := <-first; a != (answer{run: 1, took: time.Second}) {
			t.Errorf("first caller: %+v", a)
		}
		for _, ch := range []<-chan answer{second, third} {
			if a := <-ch; a != (answer{run: 2, took: 3 * time.Second / 2}) {
				t.Errorf("caller during the first run: %+v", a)
			}
		}
		if s.runs != 2 {
			t.Errorf("%d runs, want 2", s.runs)
		}
	})
}

func TestAFailedRunDoesNotStrandItsFollowers(t *testing.T) { // R7
	boom := errors.New("boom")
	s := &source{play: func(_ context.Context, run int) error {
		time.Sleep(time.Second)
		if run == 1 {
			return boom
		}
		return nil
	}}
	run(t, s, fresh.Config{}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		first, second := ask(t.Context(), c), ask(t.Context(), c)
		if a := <-first; a.err != boom {
			t.Errorf("caller of the failed run: %+v", a)
		}
		if a := <-second; a.err != nil || a.run != 2 {
			t.Errorf("follower: %+v", a)
		}
		if st := c.Stats(); st != (fresh.Stats{Runs: 2, Failed: 1}) {
			t.Errorf("Stats = %+v", st)
		}
	})
}

func TestNothingIsKeptAfterARun(t *testing.T) { // R8
	s := &source{}
	run(t, s, fresh.Config{}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		for want := 1; want <= 3; want++ {
			if a := <-ask(t.Context(), c, "a"); a.run != want {
				t.Errorf("call %d answered by run %d", want, a.run)
			}
		}
	})
}

func TestOneRunsAndOneIsPromisedUnderAnyLoad(t *testing.T) { // R9
	var running, most, runs atomic.Int64
	c := fresh.New(func(context.Context, []int) (int64, error) {
		now := running.Add(1)
		defer running.Add(-1)
		for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		return runs.Add(1), nil
	}, fresh.Config{})
	defer c.Close()
	var wg sync.WaitGroup
	for i := range 500 {
		wg.Go(func() {
			before := runs.Load()
			if got, err := c.Do(t.Context(), i); err != nil || got <= before {
				t.Errorf("Do = %d, %v after run %d had answered", got, err, before)
			}
		})
	}
	wg.Wait()
	if most.Load() != 1 || runs.Load() > 500 {
		t.Errorf("%d runs at once, %d in all", most.Load(), runs.Load())
	}
}

func TestALeaverDoesNotFailTheOthers(t *testing.T) { // R81
	s := &source{play: func(ctx context.Context, _ int) error {
		select {
		case <-time.After(time.Second):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	run(t, s, fresh.Config{}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		ctx, leave := context.WithCancel(t.Context())
		running := ask(t.Context(), c)
		leaver, stayer := ask(ctx, c, "a"), ask(t.Context(), c, "b")
		leave()
		if a := <-leaver; a.err != context.Canceled || a.took != 0 {
			t.Errorf("leaver: %+v", a)
		}
		if a := <-running; a.err != nil {
			t.Errorf("caller of the running one: %+v", a)
		}
		if a := <-stayer; a.err != nil || a.run != 2 {
			t.Errorf("stayer: %+v", a)
		}
		if !slices.Equal(s.keys[1], []string{"b"}) {
			t.Errorf("the second run was asked for %q, which the leaver need not know any more", s.keys[1])
		}
	})
}

func TestAPromiseNobodyWaitsForIsNotStarted(t *testing.T) { // R81
	s := &source{}
	run(t, s, fresh.Config{}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		ctx, leave := context.WithTimeout(t.Context(), time.Second/2)
		defer leave()
		stayer := ask(t.Context(), c)
		one, two := ask(ctx, c, "a"), ask(ctx, c)
		if st := c.Stats(); st != (fresh.Stats{Runs: 1, Waiters: 3, Running: true, Promised: true}) {
			t.Errorf("Stats = %+v", st)
		}
		for _, ch := range []<-chan answer{one, two} {
			if a := <-ch; a.err != context.DeadlineExceeded || a.took != time.Second/2 {
				t.Errorf("leaver: %+v", a)
			}
		}
		if a := <-stayer; a.err != nil {
			t.Errorf("stayer: %+v", a)
		}
		time.Sleep(time.Hour)
		if st := c.Stats(); st != (fresh.Stats{Runs: 1, NeverStarted: 1}) || s.runs != 1 {
			t.Errorf("Stats = %+v, %d runs", st, s.runs)
		}
	})
}

func TestARunNobodyWaitsForIsCancelledAndNotJoined(t *testing.T) { // R81
	var cause error
	s := &source{}
	s.play = func(ctx context.Context, run int) error {
		if run == 1 {
			<-ctx.Done()
			cause = context.Cause(ctx)
			time.Sleep(time.Second) // takes its time to end
			return errors.New("nobody hears this")
		}
		return nil
	}
	run(t, s, fresh.Config{}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		ctx, leave := context.WithCancel(t.Context())
		leaver := ask(ctx, c)
		leave()
		if a := <-leaver; a.err != context.Canceled {
			t.Errorf("leaver: %+v", a)
		}
		synctest.Wait()
		if cause != context.Canceled {
			t.Errorf("the run was cancelled because of %v", cause)
		}
		if st := c.Stats(); st != (fresh.Stats{Runs: 1, Cancelled: 1, Running: true}) {
			t.Errorf("Stats = %+v", st)
		}
		if a := <-ask(t.Context(), c); a != (answer{run: 2, took: time.Second}) {
			t.Errorf("newcomer: %+v", a)
		}
		if st := c.Stats(); st != (fresh.Stats{Runs: 2, Cancelled: 1}) {
			t.Errorf("Stats = %+v", st)
		}
	})
}

func TestTheWorkSeesTheBaseAndNotTheCaller(t *testing.T) {
	type key struct{}
	var seen any
	var deadline bool
	s := &source{play: func(ctx context.Context, _ int) error {
		seen = ctx.Value(key{})
		_, deadline = ctx.Deadline()
		return nil
	}}
	base := context.WithValue(context.Background(), key{}, "base")
	run(t, s, fresh.Config{Base: base}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "caller"), time.Hour)
		defer cancel()
		<-ask(ctx, c)
		if seen != "base" || deadline {
			t.Errorf("the work saw %v, and a deadline: %v", seen, deadline)
		}
	})
}

// leaver is a context that ends together with the run: whoever looks at its Done finds both.
type leaver struct {
	context.Context
	left bool
}

func (l *leaver) Done() <-chan struct{} {
	time.Sleep(time.Minute) // by then the run has answered
	l.left = true
	done := make(chan struct{})
	close(done)
	return done
}

func (l *leaver) Err() error {
	if l.left {
		return context.Canceled
	}
	return nil
}

func TestAnAnswerThatIsThereWinsOverLeaving(t *testing.T) {
	s := &source{}
	run(t, s, fresh.Config{}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		for want := 1; want <= 20; want++ { // which of the two is seen first is random
			if n, err := c.Do(&leaver{Context: t.Context()}); n != want || err != nil {
				t.Fatalf("Do = %d, %v", n, err)
			}
		}
	})
}

// elapse lets time pass: virtual time in a bubble, and in benchmarks what a run takes.
func elapse(d time.Duration) { time.Sleep(d) }
