package backend

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"
)

// ErrBudget is the error of a call that took longer than its budget. Its effect is unknown.
var ErrBudget = errors.New("backend: budget exceeded")

// The budgets of calls that say nothing else.
const (
	budgetDefault = 60 * time.Second
	budgetPing    = 5 * time.Second
	budgetList    = 15 * time.Second
	budgetCreate  = 180 * time.Second
)

// Budgets bounds the calls of a Backend. A field that is 0 means its default, a negative one no bound. The zero Budgets is
// ready for use. It is a value that Bound copies.
type Budgets struct {
	Ping    time.Duration // 0: 5 s
	List    time.Duration // 0: 15 s
	Create  time.Duration // 0: 180 s
	Stop    time.Duration // 0: 60 s
	Destroy time.Duration // 0: 60 s
	Mark    time.Duration // 0: 60 s

	Running *sync.WaitGroup // counts the bounded calls that have not returned, stragglers too, for a shutdown to wait on; nil: not counted
	Clock   clock.Clock     // nil: the real one
	Logger  *zap.Logger     // nil: silent
}

// Bound returns b with an end to every call. The context that b gets carries the budget as its deadline, and ends with the
// caller's. When b has not returned by then, the caller gets Unknown and ErrBudget, or the error of its own context, at once.
// The call's goroutine belongs to the returned Backend and ends when b returns, which is logged as the call's true result; a b
// that honours its context leaves none. A panic in b reaches the caller, or the log when the caller has gone.
//
// An outcome that comes with an error is turned into Unknown. The result implements Marker if and only if b does.
// A bounded call costs a goroutine and a timer. Bound panics if b is nil.
func (bs Budgets) Bound(b Backend) Backend {
	if b == nil {
		panic("backend: Bound of a nil Backend")
	}
	if bs.Clock == nil {
		bs.Clock = clock.New()
	}
	if bs.Logger == nil {
		bs.Logger = zap.NewNop()
	}
	if bs.Running == nil {
		bs.Running = new(sync.WaitGroup)
	}
	bounded := &bounded{b, bs}
	if m, ok := b.(Marker); ok {
		return &boundedMarker{bounded, m}
	}
	return bounded
}

type bounded struct {
	b  Backend
	bs Budgets
}

type boundedMarker struct {
	*bounded
	m Marker
}

func (b *bounded) Create(ctx context.Context, s Spec) (Sandbox, error) {
	return within(ctx, b.bs, call{"create", s.ID, or(b.bs.Create, budgetCreate)}, func(ctx context.Context) (Sandbox, error) {
		return b.b.Create(ctx, s)
	})
}

func (b *bounded) List(ctx context.Context, ids ...string) (Snapshot, error) {
	return within(ctx, b.bs, call{"list", strings.Join(ids, ","), or(b.bs.List, budgetList)}, func(ctx context.Context) (Snapshot, error) {
		return b.b.List(ctx, ids...)
	})
}

func (b *bounded) Stop(ctx context.Context, r Ref) (Outcome, error) {
	return outcome(within(ctx, b.bs, call{"stop", r.ID, or(b.bs.Stop, budgetDefault)}, func(ctx context.Context) (Outcome, error) {
		return b.b.Stop(ctx, r)
	}))
}

func (b *bounded) Destroy(ctx context.Context, r Ref) (Outcome, error) {
	return outcome(within(ctx, b.bs, call{"destroy", r.ID, or(b.bs.Destroy, budgetDefault)}, func(ctx context.Context) (Outcome, error) {
		return b.b.Destroy(ctx, r)
	}))
}

func (b *bounded) Ping(ctx context.Context) error {
	_, err := within(ctx, b.bs, call{"ping", "", or(b.bs.Ping, budgetPing)}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, b.b.Ping(ctx)
	})
	return err
}

func (b *boundedMarker) Mark(ctx context.Context, r Ref, pinned bool) (Outcome, error) {
	return outcome(within(ctx, b.bs, call{"mark", r.ID, or(b.bs.Mark, budgetDefault)}, func(ctx context.Context) (Outcome, error) {
		return b.m.Mark(ctx, r, pinned)
	}))
}

func or(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

func outcome(o Outcome, err error) (Outcome, error) {
	if err != nil {
		return Unknown, err
	}
	return o, nil
}
