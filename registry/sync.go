package registry

import (
	"context"
	"errors"
	"fmt"
	"math"

	"go.uber.org/zap"
)

// Report is what a Sync found and what it made of that. The zero Report is that of a Sync that made no list, and proves nothing.
type Report[K comparable, V any] struct {
	Snapshot[K, V]
	Adopted  int // registered by this Sync
	Declined int // refused by Adopt, with ErrNotAdoptable
	Failed   int // Adopt failed; the next list tries again
	Dropped  int // absent
	r        *Registry[K, V]
}

// Has is true for a key that may have an object: the list has it, or there is an entry now, or it is held now. Only for other keys
// may room be given back in a quota.
func (rep Report[K, V]) Has(k K) bool {
	if _, listed := rep.Items[k]; listed {
		return true
	}
	return rep.r != nil && rep.r.knows(k)
}

func (r *Registry[K, V]) knows(k K) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holds[k] != nil || r.live.load(k) != nil
}

// CapError is returned by Sync when more entries are absent than Config.Cap lets it drop: it has dropped none.
type CapError struct {
	Absent int // registered, and absent from a complete list
	Known  int // registered
	Max    int // how many of them could have been dropped
}

// Error gives the three numbers and says that nothing was dropped.
func (e *CapError) Error() string {
	return fmt.Sprintf("registry: %d of %d entries are absent from the list, more than the cap of %d: none was dropped", e.Absent, e.Known, e.Max)
}

// Sync brings the registry up to date with a list made after the call. Entries that are missing from it are dropped, if it is complete,
// and then new objects are adopted, one after the other. Held keys are left alone. While draining it does nothing and returns
// the zero Report.
//
// Errors: ErrUnavailable, with nothing changed; *CapError, with nothing dropped; and the error of ctx, with the Report so
// far. A failed adoption is no error of Sync: it is counted and logged, and so is one that panicked. If list panics, or Observe about
// a removal, so does Sync.
func (r *Registry[K, V]) Sync(ctx context.Context) (rep Report[K, V], err error) {
	if r.cfg.Draining() {
		return rep, nil
	}
	rd := r.begin()
	defer r.end(rd)
	l, err := r.lists.Do(ctx)
	if err != nil {
		return rep, unavailable(ctx, err)
	}
	rep.Snapshot, rep.r = l.Snapshot, r
	capped := r.dropAbsent(l, &rep)
	return rep, errors.Join(capped, r.adoptNew(ctx, l, rd, &rep))
}

func (r *Registry[K, V]) dropAbsent(l *listing[K, V], rep *Report[K, V]) error {
	if !l.Complete {
		return nil
	}
	known, absent := r.absent(l)
	if limit := int(math.Ceil(r.cfg.Cap * float64(known))); len(absent) > limit {
		err := &CapError{Absent: len(absent), Known: known, Max: limit}
		r.cfg.Logger.Warn("registry: too many entries are absent; none is dropped",
			zap.Int("absent", err.Absent), zap.Int("known", err.Known), zap.Int("max", err.Max))
		return err
	}
	for _, rec := range absent {
		if r.drop(rec) {
			rep.Dropped++
		}
	}
	return nil
}

// absent returns how many entries there are and which of them l proves to be gone.
func (r *Registry[K, V]) absent(l *listing[K, V]) (known int, gone []*record[K, V]) {
	now := r.cfg.Clock.Now()
	fenced := uint64(0)
	for rec := range r.live.each() {
		known++
		switch _, listed := l.Items[rec.Key]; {
		case listed:
		case r.expendable(rec, l, now):
			gone = append(gone, rec)
		case rec.seq > l.seq:
			fenced++
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Fenced += fenced
	return known, gone
}

func (r *Registry[K, V]) adoptNew(ctx context.Context, l *listing[K, V], rd *reader, rep *Report[K, V]) error {
	for k := range l.Items {
		f := r.apply(ctx, k, l, rd)
		switch {
		case f.adopted:
			rep.Adopted++
		case f.err != nil && f.err == ctx.Err():
			return f.err
		case errors.Is(f.err, ErrNotAdoptable):
			rep.Declined++
		case f.panicked != nil || errors.Is(f.err, ErrUnavailable):
			rep.Failed++
		}
	}
	return nil
}
