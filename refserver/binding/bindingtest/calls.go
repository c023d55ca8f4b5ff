package bindingtest

import (
	"context"
	"errors"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/refserver/binding"
)

func calls() []Case {
	return []Case{
		{"ACallWhoseContextHasEndedIsAnErrorAndChangesNothing", "R74", func(t *trace) {
			t.begin(box, "p", 0)
			t.bind(box, "p", "minted")
			ctx, cancel := context.WithCancel(t.ctx)
			cancel()
			for name, call := range everyCall(t.store) {
				if err := call(ctx); !errors.Is(err, context.Canceled) {
					t.errorf("%s returned %v, want %v", name, err, context.Canceled)
				}
			}
			t.refs(map[backend.Ref]time.Duration{box: 0})
			t.bound(box, "q", "")
			t.bound(box, "p", "minted")
			t.prune(time.Hour, 0) // it has not ended
		}},
		{"PingSaysThatTheStoreCanBeAsked", "", func(t *trace) { t.must("ping", t.store.Ping(t.ctx)) }},
		{"AfterCloseEveryCallFails", "", func(t *trace) {
			t.bind(box, "p", "minted")
			t.must("close", t.store.Close())
			t.must("close again", t.store.Close())
			for name, call := range everyCall(t.store) {
				if err := call(t.ctx); err == nil || errors.Is(err, binding.ErrConflict) {
					t.errorf("%s after Close returned %v", name, err)
				}
			}
		}},
	}
}

// everyCall returns one call of each method but Close. Each would change something if it could.
func everyCall(s binding.Store) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Begin":  func(ctx context.Context) error { return s.Begin(ctx, start(other, "q", time.Hour)) },
		"Bind":   func(ctx context.Context) error { return s.Bind(ctx, box, "q", "minted") },
		"End":    func(ctx context.Context) error { return s.End(ctx, box, "p", epoch) },
		"Bound":  func(ctx context.Context) error { _, err := s.Bound(ctx, box, "p"); return err },
		"Public": func(ctx context.Context) error { _, err := s.Public(ctx, box, []string{"minted"}); return err },
		"Prune":  func(ctx context.Context) error { _, err := s.Prune(ctx, epoch.Add(2*binding.Lifetime)); return err },
		"Refs":   func(ctx context.Context) error { _, err := s.Refs(ctx); return err },
		"Forget": func(ctx context.Context) error { return s.Forget(ctx, box) },
		"Ping":   func(ctx context.Context) error { return s.Ping(ctx) },
	}
}
