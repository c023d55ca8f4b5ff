package bindingtest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/refserver/binding"
)

func writes() []Case {
	return []Case{
		{"TheSameBindingAgainIsAccepted", "R74", func(t *trace) {
			t.bind(box, "p", "minted")
			t.bind(box, "p", "minted")
			t.bound(box, "p", "minted")
		}},
		{"AnotherBindingIsAConflictAndChangesNothing", "R74", func(t *trace) {
			t.bind(box, "p", "minted")
			t.conflict(box, "p", "another")
			t.conflict(box, "p", "p")
			t.bound(box, "p", "minted")
			t.public(box, []string{"minted", "another", "p"}, "minted", "p")
		}},
		{"AnIDBoundToItselfIsBound", "R74", func(t *trace) {
			t.bind(box, "p", "p")
			t.bind(box, "p", "p")
			t.conflict(box, "p", "minted")
			t.bound(box, "p", "p")
		}},
		{"NothingIsBoundToNothing", "R74", func(t *trace) {
			if err := t.store.Bind(t.ctx, box, "p", ""); err == nil || errors.Is(err, binding.ErrConflict) {
				t.errorf("a binding to nothing returned %v", err)
			}
			t.bind(box, "p", "minted")
		}},
		{"TheFirstStartCounts", "R76", func(t *trace) {
			t.begin(box, "p", time.Minute)
			t.begin(box, "p", 3*binding.Lifetime)
			t.begin(box, "p", -3*binding.Lifetime)
			t.refs(map[backend.Ref]time.Duration{box: time.Minute})
			t.prune(binding.Lifetime, 0)
			t.prune(binding.Lifetime+time.Minute, 1)
		}},
		{"TheFirstEndCounts", "R76", func(t *trace) {
			t.begin(box, "p", 0)
			t.end(box, "p", time.Hour)
			t.end(box, "p", 2*time.Hour)
			t.end(box, "p", time.Minute)
			t.prune(time.Hour-time.Millisecond, 0)
			t.prune(time.Hour, 1)
		}},
		{"TheEndOfAnUnknownStartDoesNothing", "R76", func(t *trace) {
			t.end(box, "p", 0)
			t.bind(box, "q", "minted")
			t.end(box, "q", 0)
			t.refs(map[backend.Ref]time.Duration{box: noStart})
			t.begin(box, "q", time.Minute)
			t.end(again, "q", 0)
			t.end(other, "q", 0)
			t.prune(time.Hour, 0)
		}},
		{"OfTwoWritersOneWins", "R74", func(t *trace) { race(t, 2, 20) }},
		{"OfSixteenWritersOneWins", "R74", func(t *trace) { race(t, 16, 5) }},
	}
}

// race lets writers bind the same ids at once, each to an id of its own. Of each, one is told that it did, and the store agrees.
func race(t *trace, writers, rounds int) {
	for round := range rounds {
		id, errs := fmt.Sprint("p", round), make([]error, writers)
		var ready, done sync.WaitGroup
		ready.Add(1)
		for w := range writers {
			done.Go(func() { ready.Wait(); errs[w] = t.store.Bind(t.ctx, box, id, fmt.Sprint("m", w)) })
		}
		ready.Done()
		done.Wait()
		winner := -1
		for w, err := range errs {
			switch {
			case err == nil && winner >= 0:
				t.errorf("writers %d and %d have both bound %s", winner, w, id)
			case err == nil:
				winner = w
			case !errors.Is(err, binding.ErrConflict):
				t.errorf("writer %d: %w", w, err)
			}
		}
		t.bound(box, id, fmt.Sprint("m", winner))
	}
}
