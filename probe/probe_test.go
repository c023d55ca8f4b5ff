package probe_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwell-go/keepwell/probe"
)

var errSick = errors.New("sick")

// counting returns a check that counts its calls, and how many of them are in progress.
func counting[T any](check func(context.Context) (T, error)) (f func(context.Context) (T, error), calls, running *atomic.Int64) {
	calls, running = new(atomic.Int64), new(atomic.Int64)
	return func(ctx context.Context) (T, error) {
		calls.Add(1)
		running.Add(1)
		defer running.Add(-1)
		return check(ctx)
	}, calls, running
}

func TestConcurrentCallersShareOneCheck(t *testing.T) { // R38
	synctest.Test(t, func(t *testing.T) {
		check, calls, _ := counting(func(context.Context) (int, error) {
			time.Sleep(time.Second)
			return 7, nil
		})
		p := probe.New(check, probe.Config{})
		defer p.Close()
		var right atomic.Int64
		for range 50 {
			go func() {
				if r, err := p.Get(t.Context()); err == nil && r.Err == nil && r.Value == 7 && r.State == probe.Up && r.Took == time.Second {
					right.Add(1)
				}
			}()
		}
		time.Sleep(2 * time.Second)
		if calls.Load() != 1 || right.Load() != 50 {
			t.Errorf("%d checks gave %d of 50 callers the result", calls.Load(), right.Load())
		}
		if s := p.Stats(); s.Checks != 1 || s.Joined != 49 || s.Cached != 0 || s.Failed != 0 || s.Running || s.Wedged {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestAResultIsKeptForItsTTLGoodOrBad(t *testing.T) { // R39
	for _, c := range []struct {
		name string
		cfg  probe.Config
		err  error
		ttl  time.Duration
	}{
		{"good", probe.Config{TTL: time.Minute, FailureTTL: time.Second}, nil, time.Minute},
		{"bad", probe.Config{TTL: time.Minute, FailureTTL: time.Second}, errSick, time.Second},
		{"bad_like_good", probe.Config{TTL: time.Minute}, errSick, time.Minute},
		{"default", probe.Config{}, nil, 10 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				check, calls, _ := counting(func(context.Context) (int, error) {
					time.Sleep(time.Second) // the TTL counts from completion
					return 7, c.err
				})
				p := probe.New(check, c.cfg)
				defer p.Close()
				get := func(want int64) {
					t.Helper()
					r, err := p.Get(t.Context())
					if err != nil || r.Value != 7 || r.Err != c.err || calls.Load() != want {
						t.Errorf("got %+v, %v after %d checks, want %d", r, err, calls.Load(), want)
					}
				}
				get(1)
				time.Sleep(c.ttl - time.Nanosecond)
				get(1)
				time.Sleep(time.Nanosecond)
				get(2)
			})
		})
	}
}

func TestTheNextCallAfterATroubledCheckIsAnswered(t *testing.T) { // R40
	for name, trouble := range map[string]struct {
		check func(context.Context) (int, error)
		is    func(error) bool
		text  string
	}{
		"error": {func(context.Context) (int, error) { return 0, errSick }, is(errSick), "sick"},
		"panic": {func(context.Context) (int, error) { panic(errSick) }, func(err error) bool {
			p, ok := errors.AsType[*probe.PanicError](err)
			return ok && errors.Is(err, errSick) && len(p.Stack) > 0
		}, "probe: check panicked: sick"},
		"panic_text": {func(context.Context) (int, error) { panic("text") }, func(err error) bool {
			p, ok := errors.AsType[*probe.PanicError](err)
			return ok && p.Value == "text" && p.Unwrap() == nil
		}, "probe: check panicked: text"},
		"goexit": {func(context.Context) (int, error) { runtime.Goexit(); return 0, nil }, is(probe.ErrGoexit), "probe: check exited its goroutine"},
		"budget": {func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }, is(probe.ErrBudget), "probe: check exceeded its budget of 5s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := true
				p := probe.New(func(ctx context.Context) (int, error) {
					if first {
						first = false
						return trouble.check(ctx)
					}
					return 7, nil
				}, probe.Config{FailureTTL: time.Second})
				defer p.Close()
				r, err := p.Get(t.Context())
				if err != nil || !trouble.is(r.Err) || r.Err.Error() != trouble.text {
					t.Fatalf("got %v, %v", r.Err, err)
				}
				time.Sleep(time.Second)
				if r, err := p.Get(t.Context()); err != nil || r.Err != nil || r.Value != 7 {
					t.Errorf("then got %+v, %v", r, err)
				}
				if s := p.Stats(); s.Checks != 2 || s.Failed != 1 {
					t.Errorf("stats %+v", s)
				}
			})
		})
	}
}

func is(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }

func TestACallersContextEndsOnlyItsOwnWait(t *testing.T) { // R40
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		check, calls, _ := counting(func(ctx context.Context) (int, error) {
			time.Sleep(time.Second)
			if ctx.Value(key{}) != nil {
				return 0, errors.New("a caller's value reached the check")
			}
			return 7, ctx.Err()
		})
		p := probe.New(check, probe.Config{})
		defer p.Close()
		hasty, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "tenant"), time.Millisecond)
		defer cancel()
		start := time.Now()
		left := make(chan error)
		go func() {
			_, err := p.Get(hasty)
			left <- err
		}()
		synctest.Wait()
		patient := make(chan probe.Result[int])
		go func() {
			r, _ := p.Get(t.Context())
			patient <- r
		}()
		if err := <-left; !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Millisecond {
			t.Errorf("the hasty caller got %v after %v", err, time.Since(start))
		}
		if r := <-patient; r.Err != nil || r.Value != 7 || time.Since(start) != time.Second {
			t.Errorf("the patient caller got %+v after %v", r, time.Since(start))
		}
		if n := calls.Load(); n != 1 {
			t.Errorf("%d checks", n)
		}
	})
}

func TestACheckThatIgnoresItsBudgetIsNeverDoubled(t *testing.T) { // R92
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		check, calls, running := counting(func(context.Context) (int, error) {
			<-hang
			return 1, nil
		})
		p := probe.New(check, probe.Config{Budget: time.Second, TTL: time.Second})
		defer p.Close()
		for i := range 100 {
			start := time.Now()
			r, err := p.Get(t.Context())
			if err != nil || !errors.Is(r.Err, probe.ErrBudget) || time.Since(start) != time.Second || r.Took != time.Second {
				t.Fatalf("call %d got %+v, %v after %v", i, r, err, time.Since(start))
			}
			if want := i >= 2; (r.State == probe.Down) != want {
				t.Errorf("call %d says %v", i, r.State)
			}
			if s := p.Stats(); calls.Load() != 1 || running.Load() != 1 || !s.Wedged || !s.Running {
				t.Fatalf("call %d: %d checks, %d running, stats %+v", i, calls.Load(), running.Load(), s)
			}
			time.Sleep(time.Second)
		}
		verdict := p.Peek()
		close(hang)
		synctest.Wait()
		if p.Peek() != verdict {
			t.Errorf("the late return changed %+v to %+v", verdict, p.Peek())
		}
		if s := p.Stats(); s.Wedged || s.Running {
			t.Errorf("the late return did not free the slot: %+v", s)
		}
		if r, err := p.Get(t.Context()); err != nil || r.Err != nil || r.Value != 1 || r.State != probe.Up || calls.Load() != 2 {
			t.Errorf("then got %+v, %v after %d checks", r, err, calls.Load())
		}
	})
}

func TestStateHasHysteresisAndUnknownIsNotDown(t *testing.T) { // R93
	synctest.Test(t, func(t *testing.T) {
		var verdict error
		p := probe.New(func(context.Context) (int, error) { return 0, verdict }, probe.Config{TTL: -1, Rise: 2, Fall: 3})
		defer p.Close()
		if got := p.Peek(); got.State != probe.Unknown || got.Err != nil || !got.At.IsZero() {
			t.Errorf("before the first result: %+v", got)
		}
		for i, step := range []struct {
			err  error
			want probe.State
		}{
			{errSick, probe.Unknown},
			{errSick, probe.Unknown},
			{nil, probe.Unknown},
			{errSick, probe.Unknown},
			{nil, probe.Unknown},
			{nil, probe.Up},
			{errSick, probe.Up},
			{errSick, probe.Up},
			{nil, probe.Up},
			{errSick, probe.Up},
			{errSick, probe.Up},
			{errSick, probe.Down},
			{nil, probe.Down},
			{errSick, probe.Down},
			{nil, probe.Down},
			{nil, probe.Up},
		} {
			verdict = step.err
			r, err := p.Get(t.Context())
			if err != nil || r.State != step.want || r.Err != step.err {
				t.Errorf("step %d: got %v %v, %v, want %v %v", i, r.State, r.Err, err, step.want, step.err)
			}
		}
	})
}
