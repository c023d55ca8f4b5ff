package backend_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
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

// deaf ignores its context and answers when released.
func deaf(release <-chan struct{}, out backend.Outcome, err error) engine {
	return engine{func(context.Context, string) (backend.Outcome, error) {
		<-release
		return out, err
	}}
}

// R35: the caller of a backend that ignores its context is answered all the same, and the call left behind is accounted for.
func TestBackendThatIgnoresItsContextIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, lines := observer.New(zapcore.DebugLevel)
		var running sync.WaitGroup
		release := make(chan struct{})
		b := backend.Budgets{Stop: time.Second, Running: &running, Logger: zap.New(log)}.Bound(deaf(release, backend.Stopped, nil))
		start := time.Now()
		out, err := b.Stop(t.Context(), ref)
		if took := time.Since(start); out != backend.Unknown || !errors.Is(err, backend.ErrBudget) || took != time.Second {
			t.Fatalf("got %s, %v after %v; want unknown and ErrBudget after 1s", out, err, took)
		}
		waited := make(chan struct{})
		go func() { running.Wait(); close(waited) }()
		synctest.Wait()
		select {
		case <-waited:
			t.Error("the straggler is not counted as running")
		default:
		}
		time.Sleep(time.Minute)
		close(release)
		<-waited
		want := []string{
			`WARN backend call exceeded its budget map[budget:1s call:stop "a"]`,
			`INFO backend call ended after its caller map[call:stop "a" took:1m1s]`,
		}
		if got := logged(lines); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("logged\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

func logged(lines *observer.ObservedLogs) (all []string) {
	for _, l := range lines.All() {
		all = append(all, fmt.Sprintf("%s %s %v", l.Level.CapitalString(), l.Message, l.ContextMap()))
	}
	return all
}

// A caller that leaves ends its own wait at once, and its error is its own.
func TestCallerThatLeavesIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, lines := observer.New(zapcore.DebugLevel)
		release := make(chan struct{})
		b := backend.Budgets{Logger: zap.New(log)}.Bound(deaf(release, backend.Unknown, errors.New("too late")))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		out, err := b.Destroy(ctx, ref)
		if took := time.Since(start); took != time.Second {
			t.Errorf("the caller was held for %v, want 1s", took)
		}
		if out != backend.Unknown || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, backend.ErrBudget) {
			t.Errorf("got %s, %v; want unknown and the caller's own deadline", out, err)
		}
		if want := `backend: destroy "a": its effect is unknown: context deadline exceeded`; err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
		close(release)
		synctest.Wait()
		want := `[INFO backend call ended after its caller map[call:destroy "a" error:too late took:1s]]`
		if got := fmt.Sprint(logged(lines)); got != want {
			t.Errorf("logged %s, want %s", got, want)
		}
	})
}

func TestCallersEarlierDeadlineIsWhatTheBackendSees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var seen time.Duration
		_ = backend.Budgets{}.Bound(engine{func(ctx context.Context, _ string) (backend.Outcome, error) {
			end, _ := ctx.Deadline()
			seen = time.Until(end)
			return backend.Unknown, nil
		}}).Ping(ctx)
		if seen != time.Second {
			t.Errorf("the backend is given %v, want the caller's 1s", seen)
		}
	})
}

// What the backend says in time is passed on, but an error never with a certain outcome.
func TestAnswersArePassedOn(t *testing.T) {
	refused := fmt.Errorf("%w: engine says no", backend.ErrConflict)
	own := fmt.Errorf("engine client: %w", context.DeadlineExceeded) // its own time-out, not ours
	for name, c := range map[string]struct {
		out, want backend.Outcome
		err       error
	}{
		"stopped":                  {backend.Stopped, backend.Stopped, nil},
		"gone":                     {backend.Gone, backend.Gone, nil},
		"marked":                   {backend.Marked, backend.Marked, nil},
		"error":                    {backend.Unknown, backend.Unknown, refused},
		"outcome and error":        {backend.Gone, backend.Unknown, refused},
		"time-out of the engine's": {backend.Unknown, backend.Unknown, own},
	} {
		b := backend.Budgets{}.Bound(marking{engine{func(context.Context, string) (backend.Outcome, error) { return c.out, c.err }}})
		for _, call := range []string{"stop", "destroy", "mark"} {
			if out, err := calls[call](t.Context(), b); out != c.want || err != c.err {
				t.Errorf("%s, %s: got %s, %v; want %s, %v", name, call, out, err, c.want, c.err)
			}
		}
		made, err := b.Create(t.Context(), backend.Spec{Ref: ref})
		if made.Ref != ref || err != c.err {
			t.Errorf("%s, create: got %v, %v; want %v, %v", name, made.Ref, err, ref, c.err)
		}
		if snap, err := b.List(t.Context()); !snap.Complete || err != c.err {
			t.Errorf("%s, list: got complete %v, %v; want true, %v", name, snap.Complete, err, c.err)
		}
		if err := b.Ping(t.Context()); err != c.err {
			t.Errorf("%s, ping: got %v, want %v", name, err, c.err)
		}
	}
}

// What the caller asks for is what the backend is asked for.
func TestArgumentsArePassedOn(t *testing.T) {
	inner := memory.New(memory.Config{})
	b := backend.Budgets{}.Bound(inner)
	spec := backend.Spec{Ref: ref, Tenant: "t", TTL: time.Hour}
	if _, err := b.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	other := backend.Ref{ID: ref.ID, Instance: "i2"}
	for _, step := range []struct {
		call string
		do   func() (backend.Outcome, error)
		want backend.Outcome
	}{
		{"mark another", func() (backend.Outcome, error) { return b.(backend.Marker).Mark(t.Context(), other, true) }, backend.Gone},
		{"mark", func() (backend.Outcome, error) { return b.(backend.Marker).Mark(t.Context(), ref, true) }, backend.Marked},
		{"stop another", func() (backend.Outcome, error) { return b.Stop(t.Context(), other) }, backend.Gone},
		{"stop", func() (backend.Outcome, error) { return b.Stop(t.Context(), ref) }, backend.Stopped},
		{"destroy another", func() (backend.Outcome, error) { return b.Destroy(t.Context(), other) }, backend.Gone},
	} {
		if out, err := step.do(); out != step.want || err != nil {
			t.Errorf("%s: got %s, %v; want %s", step.call, out, err, step.want)
		}
	}
	snap, err := b.List(t.Context(), ref.ID, "never")
	if err != nil || snap.Complete || len(snap.Sandboxes) != 1 {
		t.Fatalf("list by id: got %+v, %v; want one sandbox, not complete", snap, err)
	}
	if got := snap.Sandboxes[0]; got.Tenant != "t" || got.TTL != time.Hour || !got.Pinned || got.Running {
		t.Errorf("listed %+v; want the spec, pinned and stopped", got)
	}
	if out, err := b.Destroy(t.Context(), ref); out != backend.Stopped || err != nil {
		t.Errorf("destroy: got %s, %v; want stopped", out, err)
	}
}

func gone(context.Context, string) (backend.Outcome, error) { return backend.Gone, nil }

func TestBoundKeepsMarkIfAndOnlyIfItIsThere(t *testing.T) {
	if _, ok := (backend.Budgets{}).Bound(marking{engine{gone}}).(backend.Marker); !ok {
		t.Error("a Marker is none any more when it is bounded")
	}
	if _, ok := (backend.Budgets{}).Bound(engine{gone}).(backend.Marker); ok {
		t.Error("a backend without Mark has one when it is bounded")
	}
}

// A panic is the caller's, as it would be without a budget, and costs the process nothing when nobody listens any more.
func TestPanicReachesTheCaller(t *testing.T) {
	var running sync.WaitGroup
	b := backend.Budgets{Running: &running}.Bound(engine{func(context.Context, string) (backend.Outcome, error) { panic("engine on fire") }})
	defer running.Wait()
	defer func() {
		got := fmt.Sprint(recover())
		if !strings.HasPrefix(got, `backend: stop "a" panicked: engine on fire`) || !strings.Contains(got, "budgets_test.go") {
			t.Errorf("panicked with %q, want the backend's panic and where it was", got)
		}
	}()
	_, _ = b.Stop(t.Context(), ref)
	t.Error("the panic got lost")
}

func TestGoexitInABackendReachesTheCaller(t *testing.T) {
	b := backend.Budgets{}.Bound(engine{func(context.Context, string) (backend.Outcome, error) {
		runtime.Goexit()
		return backend.Stopped, nil
	}})
	defer func() {
		if got, want := fmt.Sprint(recover()), "backend: ping left by runtime.Goexit"; got != want {
			t.Errorf("panicked with %q, want %q", got, want)
		}
	}()
	_ = b.Ping(t.Context())
	t.Error("the end of the goroutine got lost")
}

func TestPanicOfAStragglerIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, lines := observer.New(zapcore.ErrorLevel)
		release := make(chan struct{})
		b := backend.Budgets{Logger: zap.New(log)}.Bound(engine{func(context.Context, string) (backend.Outcome, error) {
			<-release
			panic("engine on fire")
		}})
		if err := b.Ping(t.Context()); !errors.Is(err, backend.ErrBudget) {
			t.Fatalf("got %v, want ErrBudget", err)
		}
		close(release)
		synctest.Wait()
		got := lines.All()
		if len(got) != 1 || !strings.Contains(fmt.Sprint(got[0].ContextMap()["error"]), "ping panicked: engine on fire") {
			t.Errorf("logged %v, want the panic", got)
		}
	})
}

// The budget runs on the injected clock.
func TestMockClockDrivesTheBudgets(t *testing.T) {
	mock := clock.NewMock()
	arrived, ended := make(chan struct{}), make(chan error)
	b := backend.Budgets{Clock: mock}.Bound(engine{func(ctx context.Context, _ string) (backend.Outcome, error) {
		close(arrived)
		return hung(ctx, "")
	}})
	go func() { ended <- b.Ping(context.Background()) }()
	<-arrived
	mock.Add(5*time.Second - 1)
	select {
	case err := <-ended:
		t.Fatalf("ended before its budget: %v", err)
	default:
	}
	mock.Add(1)
	if err := <-ended; !errors.Is(err, backend.ErrBudget) {
		t.Errorf("got %v, want ErrBudget", err)
	}
}
