package memory_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
)

var errEngine = errors.New("engine says no")

// Before the effect a fault costs the effect, after it only the answer.
func TestFailureBeforeAndAfterTheEffect(t *testing.T) {
	for _, c := range []struct {
		after bool
		list  string
	}{{false, "[old/1+]"}, {true, "[new/1+]"}} {
		b := memory.New(memory.Config{})
		old := mustCreate(t, b, spec("old", "1"))
		lift := b.Engine().Inject(memory.Fault{Err: errEngine, After: c.after})
		made, err := b.Create(t.Context(), spec("new", "1"))
		if !errors.Is(err, errEngine) || made.ID != "" {
			t.Errorf("create: got %+v, %v; want nothing but the error", made, err)
		}
		out, err := b.Destroy(t.Context(), old.Ref)
		failed(t, out, err, errEngine)
		if snap, err := b.List(t.Context()); !errors.Is(err, errEngine) || snap.Complete || snap.Sandboxes != nil {
			t.Errorf("list: got %+v, %v; want nothing but the error", snap, err)
		}
		lift()
		want(t, b, c.list)
	}
}

// An effect that failed of itself is not also hit by a fault that waits behind it.
func TestRefusalComesBeforeAFaultAfterTheEffect(t *testing.T) {
	b := memory.New(memory.Config{})
	mustCreate(t, b, spec("x", "1"))
	b.Engine().Inject(memory.Fault{Call: "create", After: true, Err: errEngine})
	if _, err := b.Create(t.Context(), spec("x", "2")); !errors.Is(err, backend.ErrConflict) {
		t.Errorf("got %v, want ErrConflict", err)
	}
}

// R66: a spec that no engine would look at is refused by a broken engine as well.
func TestInvalidIsInvalidWhateverTheEngineDoes(t *testing.T) {
	b := memory.New(memory.Config{})
	b.Engine().Break()
	_, err := b.Create(t.Context(), backend.Spec{})
	if !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("create: got %v, want ErrInvalid", err)
	}
	out, err := b.Stop(t.Context(), backend.Ref{ID: "x"})
	failed(t, out, err, backend.ErrInvalid)
	out, err = b.Destroy(t.Context(), backend.Ref{Instance: "1"})
	failed(t, out, err, backend.ErrInvalid)
	out, err = b.Mark(t.Context(), backend.Ref{}, true)
	failed(t, out, err, backend.ErrInvalid)
}

func TestFaultHitsWhatItMatches(t *testing.T) {
	b := memory.New(memory.Config{})
	mustCreate(t, b, spec("x", "1"))
	b.Engine().Inject(memory.Fault{Call: "stop", ID: "x", Err: errEngine})
	out, err := b.Stop(t.Context(), spec("x", "1").Ref)
	failed(t, out, err, errEngine)
	if out, err := b.Stop(t.Context(), spec("y", "1").Ref); out != backend.Gone || err != nil {
		t.Errorf("another id: got %s, %v; want gone", out, err)
	}
	b.Engine().Inject(memory.Fault{Call: "list", ID: "x", Err: errEngine})
	if _, err := b.List(t.Context(), "w", "x"); !errors.Is(err, errEngine) {
		t.Errorf("a list that names x: got %v, want the fault", err)
	}
	want(t, b, "[x/1+]") // a list of everything names nothing
	if out, err := b.Destroy(t.Context(), spec("x", "1").Ref); out != backend.Stopped || err != nil {
		t.Errorf("another call: got %s, %v; want stopped", out, err)
	}
}

func TestFaultHitsAsOftenAsItSays(t *testing.T) {
	b := memory.New(memory.Config{})
	lift := b.Engine().Inject(memory.Fault{Call: "ping", Times: 2, Err: errEngine})
	for i, want := range []error{errEngine, errEngine, nil, nil} {
		if err := b.Ping(t.Context()); !errors.Is(err, want) {
			t.Errorf("ping %d: got %v, want %v", i, err, want)
		}
	}
	lift()
	lift()
}

func TestNewestFaultAloneHappens(t *testing.T) {
	b := memory.New(memory.Config{})
	b.Engine().Inject(memory.Fault{Err: errEngine})
	b.Engine().Inject(memory.Fault{Call: "stop", Err: fs.ErrInvalid})
	lift := b.Engine().Break()
	if err := b.Ping(t.Context()); !errors.Is(err, backend.ErrUnavailable) || err.Error() != "backend: unavailable: the engine is down" {
		t.Errorf("got %v, want the newest fault", err)
	}
	lift()
	if err := b.Ping(t.Context()); !errors.Is(err, errEngine) {
		t.Errorf("got %v, want the older fault again", err)
	}
}

func TestFaultsCanBeMisused(t *testing.T) {
	for want, f := range map[string]memory.Fault{
		`memory: no call is named "crate"`:       {Call: "crate"},
		`memory: a "stop" cannot be partial`:     {Call: "stop", Partial: true},
		`memory: a "" cannot be partial`:         {Partial: true},
		"memory: negative Times -1 or Delay 0s":  {Times: -1},
		"memory: negative Times 0 or Delay -1ns": {Delay: -1},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); got != want {
					t.Errorf("%+v panics with %q, want %q", f, got, want)
				}
			}()
			memory.New(memory.Config{}).Engine().Inject(f)
		}()
	}
}

func TestANegativeCapacityIsMisuse(t *testing.T) {
	defer func() {
		if got, want := fmt.Sprint(recover()), "memory: negative Capacity -1"; got != want {
			t.Errorf("panicked with %q, want %q", got, want)
		}
	}()
	memory.New(memory.Config{Capacity: -1})
}

// R13: the list that misses something says so.
func TestPartialListMissesHalfAndSaysSo(t *testing.T) {
	b := memory.New(memory.Config{})
	for _, id := range []string{"a", "b", "c"} {
		mustCreate(t, b, spec(id, "1"))
	}
	b.Engine().Inject(memory.Fault{Call: "list", Partial: true})
	if snap, err := b.List(t.Context()); err != nil || snap.Complete || len(snap.Sandboxes) != 1 {
		t.Errorf("got %+v, %v; want one of three, not complete", snap, err)
	}
	if snap, err := b.List(t.Context(), "b", "c"); err != nil || len(snap.Sandboxes) != 2 {
		t.Errorf("by id: got %+v, %v; want both", snap, err)
	}
}

// R27, R29
func TestPartialDestroyKeepsTheWorkspaceAndSaysSo(t *testing.T) {
	b := memory.New(memory.Config{})
	made := mustCreate(t, b, spec("x", "1"))
	_ = b.WriteFile("x", "f", []byte("data"))
	lift := b.Engine().Inject(memory.Fault{Call: "destroy", Partial: true})
	for range 2 {
		out, err := b.Destroy(t.Context(), made.Ref)
		failed(t, out, err, fs.ErrPermission)
		want(t, b, "[x/1]")
	}
	if out, err := b.Destroy(t.Context(), spec("y", "1").Ref); out != backend.Gone || err != nil {
		t.Errorf("of nothing: got %s, %v; want gone", out, err)
	}
	if _, err := b.ReadFile("x", "f"); err != nil {
		t.Errorf("the data that should stay: %v", err)
	}
	lift()
	if out, err := b.Destroy(t.Context(), made.Ref); out != backend.Stopped || err != nil {
		t.Errorf("retry: got %s, %v; want stopped", out, err)
	}
	want(t, b, "[]")
}

// R35: slow and hung calls end with their context, before the effect or after it; deaf ones do not.
func TestSlowAndHungCallsHeedTheirContext(t *testing.T) {
	for name, c := range map[string]struct {
		fault memory.Fault
		ctx   time.Duration
		err   error
		took  time.Duration
		list  string
	}{
		"slow":             {memory.Fault{Delay: time.Minute}, time.Hour, nil, time.Minute, "[x/1+]"},
		"slow, cut":        {memory.Fault{Delay: time.Minute}, time.Second, context.DeadlineExceeded, time.Second, "[]"},
		"slow after, cut":  {memory.Fault{Delay: time.Minute, After: true}, time.Second, context.DeadlineExceeded, time.Second, "[x/1+]"},
		"slow, deaf":       {memory.Fault{Delay: time.Minute, Deaf: true}, time.Second, nil, time.Minute, "[x/1+]"},
		"hung, cut":        {memory.Fault{Hang: true}, time.Second, context.DeadlineExceeded, time.Second, "[]"},
		"hung after, cut":  {memory.Fault{Hang: true, After: true}, time.Second, context.DeadlineExceeded, time.Second, "[x/1+]"},
		"hung, lifted":     {memory.Fault{Hang: true}, 3 * time.Hour, nil, 2 * time.Hour, "[x/1+]"},
		"hung and fails":   {memory.Fault{Hang: true, Err: errEngine}, 3 * time.Hour, errEngine, 2 * time.Hour, "[]"},
		"hung, deaf":       {memory.Fault{Hang: true, Deaf: true}, time.Second, nil, 2 * time.Hour, "[x/1+]"},
		"slow, then fails": {memory.Fault{Delay: time.Minute, Err: errEngine}, time.Hour, errEngine, time.Minute, "[]"},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New(memory.Config{})
			c.fault.Call = "create"
			lift := b.Engine().Inject(c.fault)
			time.AfterFunc(2*time.Hour, lift)
			ctx, cancel := context.WithTimeout(t.Context(), c.ctx)
			defer cancel()
			start := time.Now()
			_, err := b.Create(ctx, spec("x", "1"))
			if took := time.Since(start); !errors.Is(err, c.err) || took != c.took {
				t.Errorf("%s: got %v after %v; want %v after %v", name, err, took, c.err, c.took)
			}
			if errors.Is(err, context.DeadlineExceeded) && err.Error() != `memory: create "x": context deadline exceeded` {
				t.Errorf("%s: error is %q, want one that names the call", name, err)
			}
			want(t, b, c.list)
			time.Sleep(3 * time.Hour) // the lift's timer
		})
	}
}

func TestPanicComesBeforeOrAfterTheEffect(t *testing.T) {
	for after, list := range map[bool]string{false: "[]", true: "[x/1+]"} {
		b := memory.New(memory.Config{})
		b.Engine().Inject(memory.Fault{Call: "create", Panic: "on fire", After: after})
		func() {
			defer func() {
				if p := recover(); p != "on fire" {
					t.Errorf("recovered %v, want the fault's panic", p)
				}
			}()
			_, _ = b.Create(t.Context(), spec("x", "1"))
		}()
		want(t, b, list)
	}
}

// Do lets a test hold a call where it wants it, and look around meanwhile.
func TestDoIsCalledOutsideOfAllLocks(t *testing.T) {
	b := memory.New(memory.Config{})
	var seen string
	b.Engine().Inject(memory.Fault{Call: "create", After: true, Do: func(ctx context.Context) error {
		seen = listed(t, b)
		return fmt.Errorf("told: %w", errEngine)
	}})
	_, err := b.Create(t.Context(), spec("x", "1"))
	if !errors.Is(err, errEngine) || !strings.HasPrefix(err.Error(), "told: ") || seen != "[x/1+]" {
		t.Errorf("got %v after seeing %s; want its error after the effect", err, seen)
	}
}
