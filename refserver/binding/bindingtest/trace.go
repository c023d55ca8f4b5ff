package bindingtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/refserver/binding"
)

// The incarnations that cases are about: a sandbox, a later incarnation of it, and another sandbox with the same instance.
var (
	box   = backend.Ref{ID: "sbx-a", Instance: "one"}
	again = backend.Ref{ID: "sbx-a", Instance: "two"}
	other = backend.Ref{ID: "sbx-b", Instance: "one"}
)

// epoch is when the cases begin. They speak of the time after it.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// trace carries out the steps of a case one after another and keeps what went otherwise than the case says.
type trace struct {
	ctx   context.Context
	store binding.Store
	wrong []error
}

func (t *trace) result() error { return errors.Join(t.wrong...) }

func (t *trace) errorf(format string, args ...any) {
	t.wrong = append(t.wrong, fmt.Errorf(format, args...))
}

func (t *trace) must(what string, err error) {
	if err != nil {
		t.errorf("%s: %w", what, err)
	}
}

// begin records a start of the given time, which expires by the usual lifetime.
func (t *trace) begin(ref backend.Ref, id string, at time.Duration) {
	t.must("begin "+id, t.store.Begin(t.ctx, start(ref, id, at)))
}

func start(ref backend.Ref, id string, at time.Duration) binding.Start {
	return binding.Start{Ref: ref, ID: id, At: epoch.Add(at), Expires: epoch.Add(at + binding.Lifetime)}
}

func (t *trace) bind(ref backend.Ref, id, bound string) {
	t.must("bind "+id+" to "+bound, t.store.Bind(t.ctx, ref, id, bound))
}

func (t *trace) conflict(ref backend.Ref, id, bound string) {
	if err := t.store.Bind(t.ctx, ref, id, bound); !errors.Is(err, binding.ErrConflict) {
		t.errorf("bind %s to %s returned %v, want %v", id, bound, err, binding.ErrConflict)
	}
}

func (t *trace) end(ref backend.Ref, id string, at time.Duration) {
	t.must("end "+id, t.store.End(t.ctx, ref, id, epoch.Add(at)))
}

// bound says what an id is bound to; "" is nothing.
func (t *trace) bound(ref backend.Ref, id, want string) {
	got, err := t.store.Bound(t.ctx, ref, id)
	if err != nil || got != want {
		t.errorf("%s of %v is bound to %q, %v, want %q", id, ref, got, err, want)
	}
}

// public says which of the runner's ids stand for which, as pairs.
func (t *trace) public(ref backend.Ref, asked []string, pairs ...string) {
	want := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		want[pairs[i]] = pairs[i+1]
	}
	got, err := t.store.Public(t.ctx, ref, asked)
	if err != nil || !maps.Equal(got, want) {
		t.errorf("the public ids of %q of %v are %v, %v, want %v", asked, ref, got, err, want)
	}
}

// prune says how many starts go at a cutoff.
func (t *trace) prune(cutoff time.Duration, want int) {
	got, err := t.store.Prune(t.ctx, epoch.Add(cutoff))
	if err != nil || got != want {
		t.errorf("prune at %v removed %d starts, %v, want %d", cutoff, got, err, want)
	}
}

func (t *trace) forget(ref backend.Ref) { t.must("forget", t.store.Forget(t.ctx, ref)) }

// noStart stands for an incarnation that has bindings and no start.
const noStart = time.Duration(-1)

// refs says which incarnations have rows, and when their latest start was.
func (t *trace) refs(want map[backend.Ref]time.Duration) {
	got, err := t.store.Refs(t.ctx)
	if err != nil {
		t.must("refs", err)
		return
	}
	for ref, at := range want {
		time, ok := got[ref]
		if !ok || at == noStart && !time.IsZero() || at != noStart && !time.Equal(epoch.Add(at)) {
			t.errorf("the latest start of %v is %v, %v, want %v", ref, time, ok, at)
		}
	}
	if len(got) != len(want) {
		t.errorf("the incarnations are %v, want %v", got, want)
	}
}
