package quota

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"
)

// Holder is a claim as Holders found it. It is a copy, which later changes do not reach.
type Holder[K comparable, C any] struct {
	Key   K
	Claim C
	State State
	Since time.Time // when it came into State
}

// Holders iterates over what is counted, as it was at one moment when the iteration began, in the order of admission. Ask it when
// a limit is met sooner than what you see explains: it has creates and teardowns too. The loop body may call the Ledger. It costs
// a copy and a sort.
func (l *Ledger[K, C]) Holders() iter.Seq[Holder[K, C]] {
	return func(yield func(Holder[K, C]) bool) {
		for _, s := range l.held() {
			if !yield(Holder[K, C]{Key: s.key, Claim: s.claim, State: s.state, Since: s.since}) {
				return
			}
		}
	}
}

// held returns what the slots in use hold, in the order of their admission.
func (l *Ledger[K, C]) held() []entry[K, C] {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]entry[K, C], 0, len(l.slots))
	for _, s := range l.slots {
		all = append(all, s.entry)
	}
	slices.SortFunc(all, func(a, b entry[K, C]) int { return cmp.Compare(a.admission, b.admission) })
	return all
}

// Stats holds counters since New, and the use of each limit.
type Stats struct {
	Reserved   uint64 // claims that Reserve admitted
	Duplicates uint64 // claims it refused since their key was counted already
	Exceeded   uint64 // claims it refused for want of room
	Adopted    uint64 // claims that Adopt found uncounted
	Reconciled uint64 // claims that Reconcile freed

	Used map[string]map[string]int64 // by name of the limit, then by key; a key that uses nothing is left out
}

// Stats returns the counters and the use of all limits, taken at one moment. It costs a copy of every key in use.
func (l *Ledger[K, C]) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Used = make(map[string]map[string]int64, len(l.limits))
	for i := range l.limits {
		s.Used[l.limits[i].Name] = maps.Clone(l.used[i])
	}
	return s
}
