package fresh_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/keepwell-go/keepwell/registry/fresh"
)

// TestEveryPromiseHoldsUnderAnyInterleaving drives a Coalescer with callers that come, leave and run out of time, and with
// work that sleeps, ignores its context, fails, panics and ends its goroutine. // R5, R6, R7, R9, R81, R82
func TestEveryPromiseHoldsUnderAnyInterleaving(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) { rapid.SyncTest(rt, explore) })
}

func explore(t *rapid.T) {
	w := &world{
		budget: time.Duration(rapid.IntRange(1, 20).Draw(t, "budget")) * time.Millisecond,
		pace:   time.Duration(rapid.SampledFrom([]int{0, 0, 3, 30}).Draw(t, "pace")) * time.Millisecond,
		plays:  rapid.SliceOfN(plays, 64, 64).Draw(t, "plays"),
	}
	w.c = fresh.New(w.work, fresh.Config{Budget: w.budget, MinInterval: w.pace})
	t.Repeat(map[string]func(*rapid.T){
		"ask":    w.ask,
		"askAll": func(t *rapid.T) { w.start(nil, 0) },
		"leave":  w.leave,
		"pass": func(t *rapid.T) {
			time.Sleep(time.Duration(rapid.IntRange(1, 9000).Draw(t, "microseconds")) * time.Microsecond)
		},
		"": w.check,
	})
	w.finish(t)
}

// play is what one run of the work does.
type play struct {
	lasts   time.Duration
	deaf    bool // ignores the end of its context
	outcome string
}

var plays = rapid.Custom(func(t *rapid.T) play {
	return play{
		lasts:   time.Duration(rapid.IntRange(0, 30).Draw(t, "lasts")) * time.Millisecond,
		deaf:    rapid.Bool().Draw(t, "deaf"),
		outcome: rapid.SampledFrom([]string{"value", "value", "error", "panic", "goexit"}).Draw(t, "outcome"),
	}
})

// world records what callers and work saw, in one order.
type world struct {
	c            *fresh.Coalescer[int, *event]
	budget, pace time.Duration
	plays        []play

	mu      sync.Mutex // guards the fields below
	seq     int
	running int
	calls   []*event
	runs    []*event
	faults  []string
}

// event is a call of Do or a run of the work. As an error it is what a run failed with.
type event struct {
	begun, ended int // in the order of all events; ended is 0 while it goes on
	from, to     time.Time
	keys         []int
	cause        error // run: why its context ended

	ctx      context.Context // call
	cancel   context.CancelFunc
	run      *event // call: by whom it was answered, if by a run
	err      error
	panicked any
}

func (e *event) Error() string { return fmt.Sprintf("run %d failed", e.begun) }

func (w *world) begin(list *[]*event, e *event) *event {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seq++
	e.begun, e.from = w.seq, time.Now()
	*list = append(*list, e)
	return e
}

func (w *world) end(e *event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seq++
	e.ended, e.to = w.seq, time.Now()
}

func (w *world) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

func (w *world) work(ctx context.Context, keys []int) (*event, error) {
	run := w.begin(&w.runs, &event{keys: keys})
	defer w.end(run)
	w.mu.Lock()
	p := w.plays[len(w.runs)%len(w.plays)]
	if w.running++; w.running > 1 {
		w.fault("%d runs at once", w.running)
	}
	w.mu.Unlock()
	defer func() { w.mu.Lock(); w.running--; w.mu.Unlock() }()
	p.pass(ctx)
	run.cause = context.Cause(ctx)
	switch p.outcome {
	case "error":
		return nil, run
	case "panic":
		panic(run)
	case "goexit":
		runtime.Goexit()
	}
	return run, nil
}

func (p play) pass(ctx context.Context) {
	if p.deaf {
		time.Sleep(p.lasts)
		return
	}
	select {
	case <-time.After(p.lasts):
	case <-ctx.Done():
	}
}

func (w *world) ask(t *rapid.T) {
	keys := rapid.SliceOfN(rapid.IntRange(1, 5), 1, 3).Draw(t, "keys")
	w.start(keys, time.Duration(rapid.IntRange(0, 60).Draw(t, "patience"))*time.Millisecond)
}

// start calls Do in its own goroutine; patience 0 is endless.
func (w *world) start(keys []int, patience time.Duration) {
	call := &event{keys: keys}
	call.ctx, call.cancel = context.WithCancel(context.Background())
	if patience > 0 {
		call.ctx, call.cancel = context.WithTimeout(context.Background(), patience)
	}
	w.begin(&w.calls, call)
	go func() {
		defer w.end(call)
		defer call.cancel()
		defer func() {
			if call.panicked = recover(); call.panicked != nil {
				errors.As(call.panicked.(*fresh.PanicError), &call.run)
			}
		}()
		call.run, call.err = w.c.Do(call.ctx, keys...)
		errors.As(call.err, &call.run)
	}()
}

func (w *world) leave(t *rapid.T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	open := slices.DeleteFunc(slices.Clone(w.calls), func(c *event) bool { return c.ended > 0 })
	if len(open) == 0 {
		t.Skip("nobody waits")
	}
	rapid.SampledFrom(open).Draw(t, "leaver").cancel()
}

func (w *world) finish(t *rapid.T) {
	time.Sleep(time.Minute)
	w.check(t)
	if s := w.c.Stats(); s.Running || s.Promised || s.Wedged || s.Waiters != 0 || s.Runs != uint64(len(w.runs)) {
		t.Fatalf("a minute later: %+v after %d runs", s, len(w.runs))
	}
	for _, call := range w.calls {
		if call.ended == 0 {
			t.Fatalf("a call at %v has no answer", call.from)
		}
	}
	for _, run := range w.runs {
		w.checkRun(t, run)
	}
	w.c.Close()
}

func (w *world) check(t *rapid.T) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.faults) > 0 {
		t.Fatal(w.faults)
	}
	if s := w.c.Stats(); s.Running != (w.running > 0) || s.Wedged && !s.Running || s.Promised && s.Waiters == 0 {
		t.Fatalf("Stats = %+v with %d running", s, w.running)
	}
	for _, call := range w.calls {
		if call.ended > 0 {
			w.checkCall(t, call)
		}
	}
}

func (w *world) checkCall(t *rapid.T, call *event) {
	took, bound := call.to.Sub(call.from), 2*w.budget+w.pace
	if took > bound {
		t.Fatalf("answered after %v, more than two budgets and an interval, %v", took, bound)
	}
	if end, ok := call.ctx.Deadline(); ok && call.to.After(end) {
		t.Fatalf("answered %v after its deadline", call.to.Sub(end))
	}
	switch p, _ := call.panicked.(*fresh.PanicError); {
	case call.run != nil:
		w.checkAnswer(t, call, call.run)
	case p != nil && p.Value == fresh.ErrGoexit, errors.Is(call.err, fresh.ErrBudget):
	case call.err == nil || call.err != call.ctx.Err():
		t.Fatalf("neither answered nor gone: %v, panic %v", call.err, call.panicked)
	}
}

func (w *world) checkAnswer(t *rapid.T, call, run *event) {
	if run.begun < call.begun {
		t.Fatalf("a call at event %d was answered by a run that began at event %d", call.begun, run.begun)
	}
	if run.cause == context.Canceled {
		t.Fatal("a run that was cancelled for want of callers answered one")
	}
	if run.keys == nil {
		return
	}
	if len(call.keys) == 0 {
		t.Fatalf("wanted everything and was answered by a run for %v", run.keys)
	}
	for _, k := range call.keys {
		if !slices.Contains(run.keys, k) {
			t.Fatalf("wanted %v and was answered by a run for %v", call.keys, run.keys)
		}
	}
}

// checkRun checks that a run was started for somebody, and for what they wanted and nothing else.
func (w *world) checkRun(t *rapid.T, run *event) {
	var wanted []int
	everything, waiting := false, 0
	for _, call := range w.calls {
		if call.begun < run.begun && !call.to.Before(run.from) { // at the very moment of the start it may leave or be counted
			waiting++
			wanted = append(wanted, call.keys...)
			everything = everything || len(call.keys) == 0
		}
	}
	if waiting == 0 {
		t.Fatal("a run was started for nobody")
	}
	if run.keys == nil && !everything {
		t.Fatalf("everything was asked for, although the callers wanted %v", wanted)
	}
	for i, k := range run.keys {
		if !slices.Contains(wanted, k) || slices.Contains(run.keys[:i], k) {
			t.Fatalf("%v was asked for, although the callers wanted %v", run.keys, wanted)
		}
	}
	if run.to.Sub(run.from) > w.budget && run.cause == nil {
		t.Fatal("a run over its budget was not cancelled")
	}
}
