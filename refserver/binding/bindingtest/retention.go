package bindingtest

import (
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/refserver/binding"
)

const (
	day = binding.Lifetime
	ms  = time.Millisecond
)

// kept are the cases of what Prune leaves.
func kept() []Case {
	return []Case{
		{"BindingsToMintedIDsOutliveExpiryAndEnd", "R76", func(t *trace) {
			t.begin(box, "expired", -day)
			t.bind(box, "expired", "m1")
			t.begin(box, "ended", 0)
			t.bind(box, "ended", "m2")
			t.end(box, "ended", 0)
			t.prune(0, 2)
			t.prune(100*day, 0)
			t.bound(box, "expired", "m1")
			t.bound(box, "ended", "m2")
			t.conflict(box, "ended", "m3")
			t.public(box, []string{"m1", "m2"}, "m1", "expired", "m2", "ended")
			t.refs(map[backend.Ref]time.Duration{box: noStart})
		}},
		{"ALiveStartStaysBoundOrNot", "R76", func(t *trace) {
			t.begin(box, "unbound", 0)
			t.begin(box, "self", 0)
			t.bind(box, "self", "self")
			t.begin(box, "minted", 0)
			t.bind(box, "minted", "m")
			t.prune(day-ms, 0)
			t.refs(map[backend.Ref]time.Duration{box: 0})
			t.bound(box, "self", "self")
			t.prune(day, 3)
		}},
	}
}

// pruned are the cases of what Prune removes.
func pruned() []Case {
	return []Case{
		{"WhatIsUnboundOrBoundToItselfGoes", "R76", func(t *trace) {
			t.begin(box, "unbound", -day)
			t.begin(box, "self", -day)
			t.bind(box, "self", "self")
			t.begin(again, "ended", 0)
			t.bind(again, "ended", "ended")
			t.end(again, "ended", 0)
			t.prune(0, 3)
			t.bound(box, "self", "")
			t.bound(again, "ended", "")
			t.refs(nil)
			t.bind(box, "self", "minted") // it is as if it had never been
		}},
		{"ABindingToItselfGoesNotBeforeItsOwnStart", "R76", func(t *trace) {
			t.begin(box, "p", 0)
			t.bind(box, "p", "p")
			for _, ref := range []backend.Ref{again, other} {
				t.begin(ref, "p", -day)
				t.bind(ref, "p", "p")
			}
			t.begin(box, "q", -day)
			t.prune(0, 3)
			t.bound(box, "p", "p")
			t.bound(again, "p", "")
			t.bound(other, "p", "")
		}},
		{"ABindingToItselfThatHasNoStartSaysNothing", "R76", func(t *trace) {
			t.bind(box, "p", "p")
			t.prune(-100*day, 0)
			t.bound(box, "p", "")
			t.refs(nil)
		}},
	}
}

// boundaries are the cases of when Prune removes something.
func boundaries() []Case {
	return []Case{
		{"ExpiryIsExactToTheMillisecond", "R77", func(t *trace) {
			t.begin(box, "p", 0)
			t.prune(day-ms, 0)
			t.prune(day-1, 0) // the same millisecond as the line above
			t.prune(day, 1)
		}},
		{"TheEndIsExactToTheMillisecond", "R77", func(t *trace) {
			t.begin(box, "p", 0)
			t.end(box, "p", time.Minute+ms-1)
			t.prune(time.Minute-1, 0)
			t.prune(time.Minute, 1)
		}},
		{"AnEndDoesNotKeepWhatHasExpired", "R77", func(t *trace) {
			t.begin(box, "p", 0)
			t.end(box, "p", 2*day)
			t.prune(day-ms, 0)
			t.prune(day, 1)
		}},
	}
}

// incarnations are the cases of what belongs to an incarnation as a whole.
func incarnations() []Case {
	return []Case{
		{"ForgetRemovesWhatPruneKeeps", "R76", func(t *trace) {
			for _, ref := range []backend.Ref{box, again, other} {
				t.begin(ref, "p", 0)
				t.bind(ref, "p", "minted")
				t.begin(ref, "q", time.Second)
			}
			t.prune(day, 3)
			t.forget(box)
			t.forget(box)
			t.bound(box, "p", "")
			t.public(box, []string{"minted"})
			t.refs(map[backend.Ref]time.Duration{again: time.Second, other: time.Second})
			t.bound(again, "p", "minted")
			t.bound(other, "p", "minted")
			t.bind(box, "p", "another")
		}},
		{"RefsAreAllThatHaveRowsWithTheirLatestStart", "R76", func(t *trace) {
			t.refs(nil)
			t.begin(box, "p", time.Hour)
			t.begin(box, "q", 2*time.Hour)
			t.begin(box, "r", time.Hour)
			t.begin(again, "p", -time.Hour)
			t.bind(again, "p", "minted")
			t.bind(other, "p", "minted")
			t.refs(map[backend.Ref]time.Duration{box: 2 * time.Hour, again: -time.Hour, other: noStart})
			t.end(box, "q", 0)
			t.prune(0, 1)
			t.refs(map[backend.Ref]time.Duration{box: time.Hour, again: -time.Hour, other: noStart})
		}},
	}
}
