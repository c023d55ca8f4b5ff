package backend_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keepwell-go/keepwell/backend"
)

// engine is a backend whose every call is answer: what it was called, its context, the outcome and error to give.
type engine struct {
	answer func(ctx context.Context, call string) (backend.Outcome, error)
}

func (e engine) Create(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
	_, err := e.answer(ctx, "create")
	return backend.Sandbox{Spec: s, Running: true}, err
}

func (e engine) List(ctx context.Context, ids ...string) (backend.Snapshot, error) {
	_, err := e.answer(ctx, "list")
	return backend.Snapshot{Complete: len(ids) == 0}, err
}

func (e engine) Stop(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
	return e.answer(ctx, "stop")
}

func (e engine) Destroy(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
	return e.answer(ctx, "destroy")
}

func (e engine) Ping(ctx context.Context) error {
	_, err := e.answer(ctx, "ping")
	return err
}

// marking is an engine that has Mark, too.
type marking struct{ engine }

func (m marking) Mark(ctx context.Context, r backend.Ref, pinned bool) (backend.Outcome, error) {
	return m.answer(ctx, "mark")
}

var ref = backend.Ref{ID: "a", Instance: "i1"}

// calls makes each call of a backend; those without an outcome give Unknown.
var calls = map[string]func(context.Context, backend.Backend) (backend.Outcome, error){
	"create": func(ctx context.Context, b backend.Backend) (backend.Outcome, error) {
		_, err := b.Create(ctx, backend.Spec{Ref: ref})
		return backend.Unknown, err
	},
	"list": func(ctx context.Context, b backend.Backend) (backend.Outcome, error) {
		_, err := b.List(ctx, "a", "b")
		return backend.Unknown, err
	},
	"stop": func(ctx context.Context, b backend.Backend) (backend.Outcome, error) { return b.Stop(ctx, ref) },
	"destroy": func(ctx context.Context, b backend.Backend) (backend.Outcome, error) {
		return b.Destroy(ctx, ref)
	},
	"mark": func(ctx context.Context, b backend.Backend) (backend.Outcome, error) {
		return b.(backend.Marker).Mark(ctx, ref, true)
	},
	"ping": func(ctx context.Context, b backend.Backend) (backend.Outcome, error) {
		return backend.Unknown, b.Ping(ctx)
	},
}

// budgetsSeen returns the time that each call of a bounded backend is given; -1 is no end.
func budgetsSeen(t *testing.T, bs backend.Budgets) map[string]time.Duration {
	t.Helper()
	seen := map[string]time.Duration{}
	b := bs.Bound(marking{engine{func(ctx context.Context, call string) (backend.Outcome, error) {
		seen[call] = -1
		if end, ok := ctx.Deadline(); ok {
			seen[call] = time.Until(end)
		}
		return backend.Gone, nil
	}}})
	for name, call := range calls {
		if _, err := call(t.Context(), b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	return seen
}

// R34, R37
func TestEveryCallHasABudgetByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := map[string]time.Duration{
			"ping": 5 * time.Second, "list": 15 * time.Second, "create": 180 * time.Second,
			"stop": 60 * time.Second, "destroy": 60 * time.Second, "mark": 60 * time.Second,
		}
		if seen := budgetsSeen(t, backend.Budgets{}); fmt.Sprint(seen) != fmt.Sprint(want) {
			t.Errorf("budgets are %v, want %v", seen, want)
		}
	})
}

// R34
func TestFieldsSetTheBudgetOfTheirCallAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bs := backend.Budgets{Ping: 1, List: 2, Create: 3, Stop: 4, Destroy: 5, Mark: 6}
		want := map[string]time.Duration{"ping": 1, "list": 2, "create": 3, "stop": 4, "destroy": 5, "mark": 6}
		if seen := budgetsSeen(t, bs); fmt.Sprint(seen) != fmt.Sprint(want) {
			t.Errorf("budgets are %v, want %v", seen, want)
		}
	})
}

// R34
func TestNegativeBudgetOptsOut(t *testing.T) {
	never := backend.Budgets{Ping: -1, List: -1, Create: -1, Stop: -1, Destroy: -1, Mark: -1}
	for call, seen := range budgetsSeen(t, never) {
		if seen != -1 {
			t.Errorf("%s has %v, want no end", call, seen)
		}
	}
}

// hung answers when its context ends, with that context's error, as a client library does.
func hung(ctx context.Context, _ string) (backend.Outcome, error) {
	<-ctx.Done()
	return backend.Stopped, fmt.Errorf("engine client: %w", ctx.Err())
}

// R35: at the budget, with a distinct error that names call, id and budget; and nothing is left, or the bubble would not end.
func TestHungCallEndsAtItsBudget(t *testing.T) {
	budget := map[string]time.Duration{
		"ping": 5 * time.Second, "list": 15 * time.Second, "create": 3 * time.Minute,
		"stop": time.Minute, "destroy": time.Minute, "mark": time.Minute,
	}
	named := map[string]string{
		"ping": `ping`, "list": `list "a,b"`, "create": `create "a"`,
		"stop": `stop "a"`, "destroy": `destroy "a"`, "mark": `mark "a"`,
	}
	for name, call := range calls {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			out, err := call(t.Context(), backend.Budgets{}.Bound(marking{engine{hung}}))
			if took := time.Since(start); took != budget[name] {
				t.Errorf("%s ended after %v, want %v", name, took, budget[name])
			}
			want := fmt.Sprintf("backend: budget exceeded: %s got no answer within %s, its effect is unknown", named[name], budget[name])
			if out != backend.Unknown || !errors.Is(err, backend.ErrBudget) || err.Error() != want {
				t.Errorf("%s: got %s, %v; want unknown, %s", name, out, err, want)
			}
			if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v looks like the end of the caller's own context", name, err)
			}
		})
	}
}

// R35: an engine client that looks at its context sees a deadline that has passed.
func TestEndOfTheBudgetIsADeadlineToTheBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := errors.New("unset"), errors.New("unset")
		_ = backend.Budgets{}.Bound(engine{func(ctx context.Context, _ string) (backend.Outcome, error) {
			before = ctx.Err()
			<-ctx.Done()
			after = ctx.Err()
			return backend.Unknown, after
		}}).Ping(t.Context())
		synctest.Wait()
		if before != nil || after != context.DeadlineExceeded {
			t.Errorf("the context's error is %v, then %v; want nil, then %v", before, after, context.DeadlineExceeded)
		}
	})
}

// R35: whichever of the backend's and our own notice of the budget comes first.
func TestErrorIsDistinctHoweverShortTheBudget(t *testing.T) {
	b := backend.Budgets{Ping: 1}.Bound(engine{hung})
	for range 200 {
		if err := b.Ping(t.Context()); !errors.Is(err, backend.ErrBudget) || errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want ErrBudget alone", err)
		}
	}
}

// What a caller is told does not depend on luck: once its context has ended it is told so, even by a backend that is quick.
func TestEndedContextWinsOverAQuickAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := backend.Budgets{}.Bound(engine{gone})
	for range 200 {
		if out, err := b.Stop(ctx, ref); out != backend.Unknown || !errors.Is(err, context.Canceled) {
			t.Fatalf("got %s, %v; want unknown and the caller's own end", out, err)
		}
	}
}

// R34: a call that ends in time is no news, whatever its answer; only what was left behind is told.
func TestNothingIsLoggedOfAnAnswerInTime(t *testing.T) {
	log, lines := observer.New(zapcore.DebugLevel)
	var running sync.WaitGroup
	b := backend.Budgets{Running: &running, Logger: zap.New(log)}.Bound(engine{func(_ context.Context, call string) (backend.Outcome, error) {
		return backend.Unknown, fmt.Errorf("%s: %w", call, backend.ErrUnavailable)
	}})
	for range 50 {
		if out, err := b.Stop(t.Context(), ref); out != backend.Unknown || !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("got %s, %v; want unknown and the backend's error", out, err)
		}
	}
	running.Wait()
	if got := logged(lines); len(got) != 0 {
		t.Errorf("logged %v, want nothing", got)
	}
}

// The backend sees its caller leave as what it is, and nothing of a call outlives it.
func TestContextOfACallEndsAsItsCallerDoesAndWithTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mock := clock.NewMock()
		var kept context.Context
		b := backend.Budgets{Clock: mock}.Bound(engine{func(ctx context.Context, _ string) (backend.Outcome, error) {
			kept = ctx
			return backend.Gone, nil
		}})
		start := mock.Now()
		if err := b.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if kept.Err() != context.Canceled {
			t.Errorf("the context of a call that is over has error %v, want %v", kept.Err(), context.Canceled)
		}
		if end := mock.WaitForAllTimers(); !end.Equal(start) {
			t.Errorf("a timer is left that would have fired after %v", end.Sub(start))
		}

		ctx, cancel := context.WithCancel(t.Context())
		seen := make(chan error, 1)
		time.AfterFunc(time.Second, cancel)
		_ = backend.Budgets{}.Bound(engine{func(ctx context.Context, _ string) (backend.Outcome, error) {
			<-ctx.Done()
			seen <- ctx.Err()
			return backend.Unknown, ctx.Err()
		}}).Ping(ctx)
		if err := <-seen; err != context.Canceled {
			t.Errorf("the backend of a caller that left sees %v, want %v", err, context.Canceled)
		}
	})
}
