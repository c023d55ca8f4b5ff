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

func TestTheBackendSeesTheEarlierOfBudgetAndCallersDeadline(t *testing.T) {
	for caller, want := range map[time.Duration]time.Duration{time.Second: time.Second, time.Hour: 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), caller)
			defer cancel()
			var seen time.Duration
			_ = backend.Budgets{Ping: 2 * time.Second}.Bound(engine{func(ctx context.Context, _ string) (backend.Outcome, error) {
				end, _ := ctx.Deadline()
				seen = time.Until(end)
				return backend.Unknown, nil
			}}).Ping(ctx)
			if seen != want {
				t.Errorf("the backend is given %v of the caller's %v, want %v", seen, caller, want)
			}
		})
	}
}

// R83: what the backend says in time is passed on, but an error never with a certain outcome.
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

func TestBoundOfNothingIsMisuse(t *testing.T) {
	defer func() {
		if got, want := recover(), "backend: Bound of a nil Backend"; got != want {
			t.Errorf("panicked with %v, want %q", got, want)
		}
	}()
	backend.Budgets{}.Bound(nil)
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
