package quota

import (
	"fmt"
	"slices"
	"time"
)

// State tells how far a claim has come. No claim has the zero State.
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

// Token is what Reserve and Adopt hand out for a claim, and how its state is changed. It may be copied freely, and every
// copy is as good as the first. It is safe for concurrent use. When the claim has been released, all methods return false and do
// nothing, even if the key has been reserved again since; those of the zero Token never do anything.
type Token[K comparable, C any] struct {
	slot      *slot[K, C]
	admission uint64
}

// Live is called when the object of a claim in flight has come into being, or when its teardown has failed and it is still there.
// It reports whether this call made the change; it is false for a claim that is live already.
func (t Token[K, C]) Live() bool { return t.move(Live, InFlight, Stopping) }

// Stopping is called before the object of a live claim is torn down. Until Release the claim takes up as much room as before. It
// reports whether this call made the change, so of several callers that want to tear down exactly one is told to.
func (t Token[K, C]) Stopping() bool { return t.move(Stopping, Live) }

// Release gives the room back, whatever the state: call it when the object is known not to exist. Of all calls for one claim, on
// this token and its copies, one returns true.
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

// Cancel takes back what was begun and not carried through, and reports whether there was such a thing: an unfinished create gives
// its room back, an unfinished teardown leaves the claim live. Defer it right after Reserve or Stopping: once Live or Release has
// been called it does nothing, and every other way out of the function, a panic too, is covered.
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

// State returns the present state, and false if the claim has been released.
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

// DuplicateError is the refusal of a key that has a token: each key is counted at most once at a time. Reserve returns it as a
// pointer, before it looks at any limit.
type DuplicateError struct {
	Key   any       // of the ledger's key type
	State State     // of the claim that is counted
	Since time.Time // when it came into that state
}

// Error names the key and what became of its first claim.
func (e *DuplicateError) Error() string {
	return fmt.Sprintf("quota: %v is counted already: %v since %s", e.Key, e.State, e.Since.UTC().Format(time.RFC3339))
}

// ExceededError is the refusal of a claim that does not fit. Reserve returns it as a pointer, for the first limit, in the order
// given to New, that is too small. It may be shown to whoever made the claim: no other claim is named in it.
type ExceededError struct {
	Limit string // the name of the limit
	Key   string // under which the claim counts; "" if the limit has no Key
	Max   int64  // the most that may be used under Key
	Used  int64  // what was used already
	Want  int64  // what the claim would have added
}

// Error says which limit refused, for whom, how much of it was taken and how much more was asked for.
func (e *ExceededError) Error() string {
	of := ""
	if e.Key != "" {
		of = fmt.Sprintf(" of %q", e.Key)
	}
	return fmt.Sprintf("quota: limit %q%s exceeded: %d used of at most %d, %d wanted", e.Limit, of, e.Used, e.Max, e.Want)
}
