package probe_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keepwell-go/keepwell/probe"
)

func ok(context.Context) (int, error) { return 7, nil }

// panics asserts that f panics with the package's name and the given words.
func panics(t *testing.T, words string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		text, _ := recover().(string)
		if !strings.HasPrefix(text, "probe: ") || !strings.Contains(text, words) {
			t.Errorf("panicked with %q, want probe: ... %s", text, words)
		}
	}()
	f()
}

func TestMisusePanicsWithThePackagesName(t *testing.T) {
	panics(t, "nil check", func() { probe.New[int](nil, probe.Config{}) })
	panics(t, "negative", func() { probe.New(ok, probe.Config{Budget: -1}) })
	panics(t, "negative", func() { probe.New(ok, probe.Config{Rise: -1}) })
	panics(t, "negative", func() { probe.New(ok, probe.Config{Fall: -1}) })
	panics(t, "needs a name", func() { new(probe.Group).Add("", true, probe.New(ok, probe.Config{})) })
	panics(t, "and a probe", func() { new(probe.Group).Add("db", true, nil) })
	panics(t, "taken: db", func() {
		var g probe.Group
		g.Add("db", true, probe.New(ok, probe.Config{}))
		g.Add("db", false, probe.New(ok, probe.Config{}))
	})
}

func TestAMockClockDrivesAProbe(t *testing.T) {
	mock := clock.NewMock()
	hang := make(chan struct{})
	check, calls, _ := counting(func(ctx context.Context) (int, error) {
		select {
		case <-hang:
			return 7, nil
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	})
	p := probe.New(check, probe.Config{Clock: mock, Budget: time.Minute, TTL: time.Hour})
	defer p.Close()
	got := make(chan probe.Result[int])
	go func() {
		r, _ := p.Get(context.Background())
		got <- r
	}()
	for calls.Load() == 0 {
		mock.Add(0) // lets the check begin
	}
	mock.Add(time.Minute)
	if r := <-got; !errors.Is(r.Err, probe.ErrBudget) || r.Took != time.Minute || !r.At.Equal(mock.Now()) {
		t.Errorf("at the end of the budget: %+v", r)
	}
	close(hang)
	mock.Add(time.Hour - 1)
	if r, _ := p.Get(context.Background()); r.Err == nil || calls.Load() != 1 {
		t.Errorf("before the end of the TTL: %+v after %d checks", r, calls.Load())
	}
	mock.Add(1)
	if r, _ := p.Get(context.Background()); r.Err != nil || r.Value != 7 || calls.Load() != 2 {
		t.Errorf("at the end of the TTL: %+v after %d checks", r, calls.Load())
	}
}

func TestAResultFromTheFutureIsNotBelieved(t *testing.T) {
	mock := clock.NewMock()
	mock.Set(time.Unix(1000, 0))
	check, calls, _ := counting(ok)
	p := probe.New(check, probe.Config{Clock: mock})
	defer p.Close()
	get := func(want int64) {
		t.Helper()
		if _, err := p.Get(context.Background()); err != nil || calls.Load() != want {
			t.Errorf("%v after %d checks, want %d", err, calls.Load(), want)
		}
	}
	get(1)
	get(1)
	mock.Set(time.Unix(999, 0)) // the clock jumps back
	get(2)
	mock.Set(time.Unix(1e6, 0)) // and far ahead: one check, not many
	get(3)
	get(3)
}

func TestACheckThatReturnsAtTheEndOfItsBudgetIsLate(t *testing.T) {
	for took, want := range map[time.Duration]error{time.Second - 1: nil, time.Second: probe.ErrBudget} {
		t.Run(took.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := probe.New(func(context.Context) (int, error) {
					time.Sleep(took)
					return 7, nil
				}, probe.Config{Budget: time.Second})
				defer p.Close()
				r, err := p.Get(t.Context())
				if err != nil || !errors.Is(r.Err, want) || r.Took != took || (r.Value == 7) != (want == nil) {
					t.Errorf("got %+v, %v, want %v", r, err, want)
				}
			})
		})
	}
}

func TestAContextAlreadyOverStartsNothingButSeesWhatIsKept(t *testing.T) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	check, calls, _ := counting(ok)
	p := probe.New(check, probe.Config{})
	defer p.Close()
	if r, err := p.Get(over); !errors.Is(err, context.Canceled) || r.State != probe.Unknown || calls.Load() != 0 {
		t.Errorf("nothing kept: %+v, %v after %d checks", r, err, calls.Load())
	}
	if _, err := p.Get(context.Background()); err != nil {
		t.Fatal(err)
	}
	if r, err := p.Get(over); err != nil || r.Value != 7 || calls.Load() != 1 {
		t.Errorf("kept: %+v, %v after %d checks", r, err, calls.Load())
	}
}

func TestACheckDuringWhichTheClockIsSetBackTookNoTime(t *testing.T) {
	mock := clock.NewMock()
	mock.Set(time.Unix(1000, 0))
	p := probe.New(func(context.Context) (int, error) {
		mock.Set(time.Unix(900, 0))
		return 7, nil
	}, probe.Config{Clock: mock})
	defer p.Close()
	if r, err := p.Get(t.Context()); err != nil || r.Value != 7 || r.Err != nil || r.Took != 0 || !r.At.Equal(time.Unix(900, 0)) {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestTheContextOfACheckSaysWhyItEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := make(chan error, 1)
		p := probe.New(func(ctx context.Context) (int, error) {
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return 0, nil
		}, probe.Config{Budget: time.Second, TTL: -1})
		if _, err := p.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-cause; !errors.Is(err, probe.ErrBudget) {
			t.Errorf("at the end of the budget: %v", err)
		}
		go p.Close()
		if _, err := p.Get(t.Context()); !errors.Is(err, probe.ErrClosed) {
			t.Errorf("Get beside Close: %v", err)
		}
		synctest.Wait()
	})
}

func TestACheckThatOutlivesGetIsNotOutlivedByItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept context.Context
		p := probe.New(func(ctx context.Context) (int, error) {
			kept = ctx
			return 7, nil
		}, probe.Config{})
		defer p.Close()
		if _, err := p.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if kept.Err() == nil {
			t.Error("the context of a finished check has not ended")
		}
	})
}

func TestTheLogTellsOfStatesAndOfAWedgeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.DebugLevel)
		hang := make(chan struct{})
		check, calls, _ := counting(func(ctx context.Context) (int, error) { return 7, nil })
		p := probe.New(func(ctx context.Context) (int, error) {
			if n, err := check(ctx); calls.Load() == 1 {
				return n, err
			}
			<-hang
			return 0, errSick
		}, probe.Config{TTL: -1, FailureTTL: -1, Fall: 2, Budget: time.Second, Logger: zap.New(core)})
		defer p.Close()
		for range 4 {
			if _, err := p.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		close(hang)
		var got []string
		for _, e := range logs.All() {
			got = append(got, e.Message)
		}
		want := []string{
			"probe state changed",
			"probe check still running after its budget; no other is started until it returns",
			"probe state changed",
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("logged\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if m := logs.All()[2].ContextMap(); m["from"] != "up" || m["to"] != "down" || m["error"] != "probe: check exceeded its budget of 1s" {
			t.Errorf("the second change was logged as %v", m)
		}
	})
}

func TestCloseDuringAWedgeLogsAndKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.DebugLevel)
		hang := make(chan struct{})
		p := probe.New(func(ctx context.Context) (int, error) {
			<-hang
			return 7, nil
		}, probe.Config{Logger: zap.New(core)})
		told := make(chan error)
		go func() {
			_, err := p.Get(t.Context())
			told <- err
		}()
		synctest.Wait()
		go p.Close()
		if err := <-told; !errors.Is(err, probe.ErrClosed) {
			t.Errorf("the waiting caller got %v", err)
		}
		synctest.Wait()
		if s := p.Stats(); !s.Running || !s.Wedged {
			t.Errorf("while Close waits: %+v", s)
		}
		close(hang)
		p.Close()
		if r := p.Peek(); !r.At.IsZero() || r.Value != 0 {
			t.Errorf("Close kept %+v", r)
		}
		if logs.Len() != 0 {
			t.Errorf("Close logged %v", logs.All())
		}
	})
}

func TestCloseOfAProbeThatNeverMeasured(t *testing.T) {
	p := probe.New(ok, probe.Config{})
	p.Close()
	if _, err := p.Status(context.Background()); !errors.Is(err, probe.ErrClosed) {
		t.Errorf("Status after Close: %v", err)
	}
	if s := p.Stats(); s != (probe.Stats{}) {
		t.Errorf("stats %+v", s)
	}
}
