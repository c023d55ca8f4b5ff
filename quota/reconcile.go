package quota

import (
	"cmp"
	"slices"

	"go.uber.org/zap"
)

// Mark tells what a Ledger had done before a call of its Mark method from what it did later. It is good for that Ledger alone. The
// zero Mark comes before every claim.
type Mark uint64

// Snapshot tells Reconcile which objects a list found. It frees nothing if it is not Complete, has no Has, or has the zero Mark,
// and so the zero Snapshot frees nothing: what a failed or shortened list does not show may well be there.
type Snapshot[K comparable] struct {
	Since    Mark         // taken before the list began
	Complete bool         // the list left nothing out
	Has      func(K) bool // whether the object exists; may call the Ledger, and may block
}

// Mark returns a Mark of now. It is for the Snapshot of a list, and so is called before that list is begun.
func (l *Ledger[K, C]) Mark() Mark {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.moment
}

// Reconcile frees the room of objects that went away without a Release. It asks s.Has about each live claim that was
// neither adopted nor made live after s.Since, releases those for which the answer is no, and returns their keys in order of
// admission. A claim in flight or stopping is left to whoever works on it, and one that changes while s.Has is being asked is left
// as it then is. It panics on a Mark of another Ledger, if it can tell. It costs a walk over all claims and a sort of those it asks about.
func (l *Ledger[K, C]) Reconcile(s Snapshot[K]) []K {
	if s.Since > l.Mark() {
		panic("quota: Reconcile with a Mark of another Ledger")
	}
	if !s.Complete || s.Has == nil {
		return nil
	}
	var absent []candidate[K, C]
	for _, c := range l.candidates(s.Since) {
		if !s.Has(c.key) {
			absent = append(absent, c)
		}
	}
	freed := l.releaseUnchanged(absent)
	if len(freed) > 0 {
		l.log.Info("quota: freed claims that no longer exist", zap.Int("claims", len(freed)))
	}
	return freed
}

// candidate is a claim as it was when Reconcile looked.
type candidate[K comparable, C any] struct {
	Token[K, C]
	key   K
	lived Mark
}

// candidates returns the claims that have been live since before m, in the order of their admission.
func (l *Ledger[K, C]) candidates(m Mark) []candidate[K, C] {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []candidate[K, C]
	for k, s := range l.slots {
		if s.state == Live && s.lived <= m {
			found = append(found, candidate[K, C]{Token: s.tokenLocked(), key: k, lived: s.lived})
		}
	}
	slices.SortFunc(found, func(a, b candidate[K, C]) int { return cmp.Compare(a.admission, b.admission) })
	return found
}

// releaseUnchanged releases those of cs to which nothing has happened since, and returns their keys.
func (l *Ledger[K, C]) releaseUnchanged(cs []candidate[K, C]) []K {
	l.mu.Lock()
	defer l.mu.Unlock()
	var freed []K
	for _, c := range cs {
		if c.countedLocked() && c.slot.state == Live && c.slot.lived == c.lived {
			l.releaseLocked(c.slot)
			l.stats.Reconciled++
			freed = append(freed, c.key)
		}
	}
	return freed
}
