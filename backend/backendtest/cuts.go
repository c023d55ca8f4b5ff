package backendtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keepwell-go/keepwell/backend"
)

// cutPoints is in how many places of its length a call is cut off.
const cutPoints = 10

func cuts() []Case {
	return []Case{
		{
			"CancelledContextChangesNothing", "R81", "work that nobody waits for is begun",
			nil, cancelledChangesNothing,
		},
		{
			"CreateCutOffAnywhereIsResolvedByAList", "R101, R102", "a create that timed out leaves what nobody can find",
			nil, cutCreates,
		},
		{
			"DestroyCutOffAnywhereCanBeRetried", "R83", "a destroy that timed out can never be finished",
			nil, cutDestroys,
		},
		{
			"HungEngineEndsWithTheContext", "R35", "one hung engine holds every caller for ever",
			[]string{"Hang"},
			hungEngine,
		},
	}
}

func cancelledChangesNothing(e *env) {
	b, s, never := e.open(), e.spec("a"), e.spec("never")
	e.create(b, s)
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	if _, err := b.Create(ctx, never); err == nil {
		e.failf("create with a cancelled context succeeded")
	}
	if snap, err := b.List(ctx); err == nil && len(snap.Sandboxes) == 0 {
		e.failf("list with a cancelled context is empty instead of an error")
	}
	for name, end := range map[string]func(context.Context, backend.Ref) (backend.Outcome, error){"stop": b.Stop, "destroy": b.Destroy} {
		out, err := end(ctx, s.Ref)
		e.outcome(name+" with a cancelled context", out, err, []backend.Outcome{backend.Unknown})
	}
	e.pause(e.h.Settle)
	e.absent(b, never.ID)
	e.running(b, s.Ref)
}

// took returns how long f takes, so that it can be cut off in the middle.
func took(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// cut runs f with a context that ends after d.
func (e *env) cut(d time.Duration, f func(context.Context)) {
	ctx, cancel := context.WithTimeout(e.ctx, d)
	defer cancel()
	f(ctx)
}

func cutCreates(e *env) {
	b, s := e.open(), e.spec("whole")
	whole := took(func() { e.create(b, s) })
	for i := range cutPoints {
		s := e.spec(fmt.Sprintf("cut-%d", i))
		e.cut(whole*time.Duration(i)/cutPoints, func(ctx context.Context) {
			_, err := b.Create(ctx, s)
			if definitive(err) {
				e.failf("create that was cut off: error %v, which says that it is known to have had no effect", err)
			}
			if err == nil {
				e.running(b, s.Ref)
			}
		})
		if got, ok := e.list(b)[s.ID]; ok && (got.Ref != s.Ref || got.Tenant != s.Tenant) {
			e.failf("create that was cut off left %v of tenant %q, want %v of %q", got.Ref, got.Tenant, s.Ref, s.Tenant)
		}
		e.resolve(b, s.Ref)
	}
}

// definitive says whether err claims to know that nothing was changed.
func definitive(err error) bool {
	return errors.Is(err, backend.ErrConflict) || errors.Is(err, backend.ErrQuota) || errors.Is(err, backend.ErrInvalid)
}

// resolve undoes a create of unknown effect by its instance alone. What appears late is found by a list.
func (e *env) resolve(b backend.Backend, r backend.Ref) {
	e.destroy(b, r, backend.Stopped, backend.Gone)
	e.pause(e.h.Settle)
	e.destroy(b, r, backend.Stopped, backend.Gone)
	e.absent(b, r.ID)
	next := again(backend.Spec{Ref: r, Tenant: "tenant-a", Image: e.h.Image})
	if made := e.create(b, next); made.Resumed {
		e.failf("a create that was cut off left a workspace that its destroy did not delete")
	}
	e.destroy(b, next.Ref, backend.Stopped)
}

func cutDestroys(e *env) {
	b, s := e.open(), e.spec("whole")
	e.create(b, s)
	whole := took(func() { e.destroy(b, s.Ref, backend.Stopped) })
	for i := range cutPoints {
		s := e.spec(fmt.Sprintf("cut-%d", i))
		e.create(b, s)
		e.cut(whole*time.Duration(i)/cutPoints, func(ctx context.Context) {
			out, err := b.Destroy(ctx, s.Ref)
			e.outcome("destroy that was cut off", out, err, []backend.Outcome{backend.Unknown, backend.Stopped})
			if out == backend.Stopped {
				e.absent(b, s.ID)
			}
		})
		e.resolve(b, s.Ref)
	}
}

func hungEngine(e *env) {
	b, s := e.open(), e.spec("a")
	e.create(b, s)
	mend := e.start(e.h.Hang)
	const short = 100 * time.Millisecond
	e.cut(short, func(ctx context.Context) {
		if _, err := b.List(ctx); err == nil {
			e.failf("list of a hung engine succeeded")
		}
	})
	e.cut(short, func(ctx context.Context) {
		out, err := b.Stop(ctx, s.Ref)
		e.outcome("stop on a hung engine", out, err, []backend.Outcome{backend.Unknown})
	})
	e.cut(short, func(ctx context.Context) {
		if err := b.Ping(ctx); err == nil {
			e.failf("ping of a hung engine succeeded")
		}
	})
	mend()
	e.pause(e.h.Settle)
	e.destroy(b, s.Ref, backend.Stopped)
}
