package registry

import (
	"fmt"
	"time"

	"github.com/keepwell-go/keepwell/registry/fresh"
)

// HeldError says that the key is held: its object is being created or torn down, a teardown is being considered, or Observe is being
// told of a change. It passes; ask again later.
type HeldError struct {
	Key        any
	Destroying bool      // since Commit: a teardown is under way; false in every other case
	Since      time.Time // when it was held
}

// Error names the key, what goes on with it, and since when.
func (e *HeldError) Error() string {
	what := "in transition"
	if e.Destroying {
		what = "being destroyed"
	}
	return fmt.Sprintf("registry: held: %v is %s, since %s", e.Key, what, e.Since.UTC().Format(time.RFC3339))
}

// Hold gives its owner a key alone: as long as it lasts nobody else can hold the key, and no list has a say in it. It is over when
// Fill, Release or Cancel has returned true. Each of them returns false and does nothing when it is over, or while another of
// them is at work. It is safe for concurrent use.
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
	busy      bool          // one of Fill, Release and Cancel is being made
	changed   chan struct{} // closed when a waiter should look again; nil while there is none
}

// Hold is called before the object of k is created. It does not ask the backend. The error is ErrExists if k has an entry, a
// *HeldError if k is held, and fresh.ErrClosed after Close. Hold panics if k is not equal to itself, as NaN is not: what is held
// under it could never be found again.
func (r *Registry[K, V]) Hold(k K) (*Hold[K, V], error) {
	if again := k; again != k {
		panic(fmt.Sprintf("registry: key %v is not equal to itself", k))
	}
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

// Take is called before the object of k is stopped or destroyed. From then on Lookup does not find it. Until Commit the caller may
// still decide against it, and Resolve waits to see. The error is ErrNotFound if k has no entry, and a *HeldError if k is held.
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

// Entry returns the entry that the key had when it was taken. For a hold by [Registry.Hold], where there was none, it is zero.
func (h *Hold[K, V]) Entry() Entry[K, V] { return h.entry }

// Commit is called when the teardown is decided. Those who wait in Resolve, and all who come later, then get a *HeldError with
// Destroying set. If the teardown fails, Cancel still undoes everything.
func (h *Hold[K, V]) Commit() {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	h.committed = true
	h.wakeLocked()
}

// Fill ends the hold with v registered, as an entry with a Version of its own. If Observe panics nothing is registered, and the hold
// goes on.
func (h *Hold[K, V]) Fill(v V) bool {
	if !h.claim() {
		return false
	}
	h.settle(h.r.newRecord(h.key, v))
	return true
}

// Release ends the hold with nothing registered. Lists that are under way cannot bring the key back, but later ones can.
func (h *Hold[K, V]) Release() bool {
	if !h.claim() {
		return false
	}
	h.settle(nil)
	return true
}

// Cancel ends the hold and leaves things as they were before it: an entry that was taken is there again, with its old Version, and
// Observe is not told. Where there was none, nobody knows what the create has left: who is waiting in Resolve gets another list. Defer it as soon as there is a hold; after Fill or Release it does nothing.
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
	h.endLocked(back, true)
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
		h.endLocked(next, false)
	case h.local:
		h.busy = false
		h.wakeLocked()
	default:
		h.freeLocked()
	}
}

// endLocked ends the transition with next registered, or with nothing and a fence against older lists; open says that there may
// be an object all the same.
func (h *Hold[K, V]) endLocked(next *record[K, V], open bool) {
	if next == nil {
		h.r.fence.bury(h.key, open)
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
