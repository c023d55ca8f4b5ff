package registry

import (
	"fmt"
	"time"

	"github.com/keepwell-go/keepwell/registry/fresh"
)

// HeldError is returned when the key is in transition.
type HeldError struct {
	Key        any
	Destroying bool // Commit was called; otherwise creating, undecided or being reported
	Since      time.Time
}

func (e *HeldError) Error() string {
	what := "in transition"
	if e.Destroying {
		what = "being destroyed"
	}
	return fmt.Sprintf("registry: held: %v is %s, since %s", e.Key, what, e.Since.Format(time.RFC3339))
}

// Hold is the exclusive right to change one key. The first of Fill, Release and Cancel ends it; later calls, and calls
// while another is being made, return false and change nothing. It is safe for concurrent use.
type Hold[K comparable, V any] struct {
	r     *Registry[K, V]
	key   K
	entry Entry[K, V] // what Take took
	took  bool        // by Take, so undecided until Commit
	local bool        // the caller's; otherwise the registry itself reports a change
	since time.Time

	taken *record[K, V] // what Cancel puts back; owned by whoever set busy

	// The rest is guarded by Registry.mu.
	committed bool
	busy      bool // one of Fill, Release and Cancel is being made
	ended     bool
	changed   chan struct{} // closed when a waiter should look again; nil while there is none
}

// Hold reserves an absent key for a create: ErrExists, *HeldError or fresh.ErrClosed.
func (r *Registry[K, V]) Hold(k K) (*Hold[K, V], error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.base.Err() != nil {
		return nil, fresh.ErrClosed
	}
	if h := r.holds[k]; h != nil {
		return nil, h.heldLocked()
	}
	if r.live.load(k) != nil {
		return nil, fmt.Errorf("%w: %v", ErrExists, k)
	}
	h := r.holdLocked(k, nil)
	h.local = true
	return h, nil
}

// Take removes a registered key from sight for a stop or destroy: ErrNotFound or *HeldError. Until Commit the hold is
// undecided, and Resolve waits for the decision.
func (r *Registry[K, V]) Take(k K) (*Hold[K, V], error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.holds[k]; h != nil {
		return nil, h.heldLocked()
	}
	rec := r.live.load(k)
	if rec == nil {
		return nil, &absentError[K]{k}
	}
	h := r.holdLocked(k, rec)
	h.local, h.took = true, true
	return h, nil
}

// holdLocked puts k in transition and rec, if any, out of sight.
func (r *Registry[K, V]) holdLocked(k K, rec *record[K, V]) *Hold[K, V] {
	h := &Hold[K, V]{r: r, key: k, taken: rec, since: r.cfg.Clock.Now()}
	r.holds[k] = h
	if rec != nil {
		h.entry = rec.Entry
		r.live.removeLocked(k)
	}
	return h
}

func (h *Hold[K, V]) heldLocked() error {
	return &HeldError{Key: h.key, Destroying: h.committed, Since: h.since}
}

// waitLocked returns what is closed when the transition gets on, or nil if there is nothing worth waiting for: a create
// or a teardown takes its time, a decision and a report do not.
func (h *Hold[K, V]) waitLocked() <-chan struct{} {
	if !h.busy && (!h.took || h.committed) {
		return nil
	}
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return h.changed
}

func (h *Hold[K, V]) wakeLocked() {
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// Entry returns what Take took; the zero Entry after Registry.Hold.
func (h *Hold[K, V]) Entry() Entry[K, V] { return h.entry }

// Commit says that a teardown has begun: Resolve answers *HeldError{Destroying: true} instead of waiting for the
// decision. Cancel is still possible, for a teardown that failed.
func (h *Hold[K, V]) Commit() {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	h.committed = true
	h.wakeLocked()
}

// Fill registers v under a new version.
func (h *Hold[K, V]) Fill(v V) bool {
	if !h.claim() {
		return false
	}
	h.settle(h.r.newRecord(h.key, v))
	return true
}

// Release leaves the key absent and fences lists that have begun.
func (h *Hold[K, V]) Release() bool {
	if !h.claim() {
		return false
	}
	h.settle(nil)
	return true
}

// Cancel puts back what was taken, same version, no event; after Registry.Hold it is Release. It is made for defer.
func (h *Hold[K, V]) Cancel() bool {
	if !h.claim() {
		return false
	}
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	var back *record[K, V]
	if h.taken != nil {
		again := *h.taken
		back = &again
	}
	h.endLocked(back)
	return true
}

func (h *Hold[K, V]) claim() bool {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	if h.busy {
		return false
	}
	h.busy = true
	return true
}

// settle tells what changes, while nobody sees the key, and then ends the transition with next registered, or nothing.
func (h *Hold[K, V]) settle(next *record[K, V]) {
	told := false
	defer func() { h.told(next, told) }() // also if Observe panics or ends the goroutine
	if taken := h.taken; taken != nil {
		h.taken = nil // told once, whatever comes of it
		h.r.cfg.Observe(Event[K, V]{Entry: taken.Entry, Local: h.local})
	}
	if next != nil {
		h.r.cfg.Observe(Event[K, V]{Entry: next.Entry, Present: true, Local: h.local})
	}
	told = true
}

// told ends the transition. An addition that Observe did not take is not made: the caller keeps its hold, and may
// cancel it. A removal is a fact, so it is made all the same.
func (h *Hold[K, V]) told(next *record[K, V], ok bool) {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	switch {
	case ok || next == nil:
		h.endLocked(next)
	case h.local:
		h.busy = false
		h.wakeLocked()
	default:
		h.freeLocked()
	}
}

// endLocked ends the transition with next registered, or with nothing and a fence against older lists.
func (h *Hold[K, V]) endLocked(next *record[K, V]) {
	if next == nil {
		h.r.fence.bury(h.key)
	} else {
		next.seq = h.r.fence.tick()
		h.r.live.addLocked(next)
	}
	h.freeLocked()
}

func (h *Hold[K, V]) freeLocked() {
	delete(h.r.holds, h.key)
	h.wakeLocked()
}

func (r *Registry[K, V]) newRecord(k K, v V) *record[K, V] {
	return &record[K, V]{Entry: Entry[K, V]{k, v, r.version.Add(1)}, since: r.cfg.Clock.Now()}
}
