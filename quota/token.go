package quota

import (
	"fmt"
	"slices"
	"time"
)

// State is where a claim is in its life. The zero State is that of no claim.
type State uint8

// The states of a claim, in the order in which it passes through them; it counts in full in each.
const (
	InFlight State = iota + 1 // reserved: being created
	Live                      // exists
	Stopping                  // being torn down, which may yet fail
)

// String returns the state in words.
func (s State) String() string {
	switch s {
	case InFlight:
		return "in flight"
	case Live:
		return "live"
	case Stopping:
		return "stopping"
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// Token is one counted claim. It is a small value: copies are the same token, and all methods may be called from any
// goroutine. A token whose claim was released does nothing, also after its key was reserved again; so does the zero Token.
type Token[K comparable, C any] struct {
	slot      *slot[K, C]
	admission uint64
}

// Live marks the claim as existing: from in flight, or back from stopping after a teardown that failed. It reports whether
// this call made the change.
func (t Token[K, C]) Live() bool { return t.move(Live, InFlight, Stopping) }

// Stopping marks a teardown of a live claim as begun; it goes on counting. It reports whether this call made the change,
// so of two callers one may go on to tear down.
func (t Token[K, C]) Stopping() bool { return t.move(Stopping, Live) }

// Release frees the claim, from any state: its object is known not to exist. It is true exactly once.
func (t Token[K, C]) Release() bool {
	if t.slot == nil {
		return false
	}
	l := t.slot.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if !t.countedLocked() {
		return false
	}
	l.releaseLocked(t.slot)
	return true
}

// Cancel undoes what is unfinished, and reports whether it did: a claim in flight is released, one that is stopping is live
// again, a live one stays. It is made for defer: after Live or Release it changes nothing, and it runs in a panic too.
func (t Token[K, C]) Cancel() bool {
	if t.slot == nil {
		return false
	}
	l := t.slot.ledger
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !t.countedLocked() || t.slot.state == Live {
		return false
	}
	if t.slot.state == InFlight {
		l.releaseLocked(t.slot)
	} else {
		l.liveLocked(t.slot, now)
	}
	return true
}

// State returns the state of the claim; false once it is released.
func (t Token[K, C]) State() (State, bool) {
	if t.slot == nil {
		return 0, false
	}
	t.slot.ledger.mu.Lock()
	defer t.slot.ledger.mu.Unlock()
	if !t.countedLocked() {
		return 0, false
	}
	return t.slot.state, true
}

// move brings the claim into state to, if it is in one of the states from.
func (t Token[K, C]) move(to State, from ...State) bool {
	if t.slot == nil {
		return false
	}
	l := t.slot.ledger
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !t.countedLocked() || !slices.Contains(from, t.slot.state) {
		return false
	}
	if to == Live {
		l.liveLocked(t.slot, now)
	} else {
		t.slot.state, t.slot.since = to, now
	}
	return true
}

// countedLocked reports whether the claim of t is still counted: its slot may be free by now, or stand for another.
func (t Token[K, C]) countedLocked() bool { return t.slot.admission == t.admission }

func (s *slot[K, C]) tokenLocked() Token[K, C] { return Token[K, C]{slot: s, admission: s.admission} }

// DuplicateError is returned by Reserve when the key is counted already.
type DuplicateError struct {
	Key   any       // of the ledger's key type
	State State     // of the claim that is counted
	Since time.Time // when it came into that state
}

// Error names the key and what became of its first claim.
func (e *DuplicateError) Error() string {
	return fmt.Sprintf("quota: %v is counted already: %v since %s", e.Key, e.State, e.Since.UTC().Format(time.RFC3339))
}

// ExceededError is returned by Reserve when a limit has no room. It tells of no other claim's key.
type ExceededError struct {
	Limit string // the name of the limit
	Key   string // under which the claim counts; "" if the limit has no Key
	Max   int64  // the most that may be used under Key
	Used  int64  // what was used already
	Want  int64  // what the claim would have added
}

// Error names the limit, its key, its maximum and its use.
func (e *ExceededError) Error() string {
	of := ""
	if e.Key != "" {
		of = fmt.Sprintf(" of %q", e.Key)
	}
	return fmt.Sprintf("quota: limit %q%s exceeded: %d used of at most %d, %d wanted", e.Limit, of, e.Used, e.Max, e.Want)
}
