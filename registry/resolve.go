package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/keepwell-go/keepwell/registry/fresh"
)

// Resolve returns the entry of k, and for a key without one finds out whether there should be one. If k is held it says so; between
// Take and Commit it waits to learn which it is. Otherwise, unless the registry is draining, it has the backend listed anew and
// adopts k if it is there. The end of ctx ends this call's wait, and nothing for others.
//
// Errors: ErrNotFound; *HeldError while the key is being created or destroyed; ErrUnavailable, which wraps the cause;
// and the error of ctx. If list or Adopt panics, or Observe about an adoption, so does Resolve, with a *fresh.PanicError,
// for each caller that waited for it.
func (r *Registry[K, V]) Resolve(ctx context.Context, k K) (Entry[K, V], error) {
	if e, ok := r.Lookup(k); ok {
		return e, nil
	}
	return r.ask(ctx, k, true)
}

// Refresh is like Resolve, but also asks the backend about an entry that it has, and drops the entry if the object is gone. It does
// not drop one that was written after the list began, or is younger than Config.Grace.
func (r *Registry[K, V]) Refresh(ctx context.Context, k K) (Entry[K, V], error) {
	return r.ask(ctx, k, false)
}

func (r *Registry[K, V]) ask(ctx context.Context, k K, trust bool) (e Entry[K, V], err error) {
	r.mu.Lock()
	r.stats.Misses++
	r.mu.Unlock()
	for {
		rec, wait, err := r.look(k)
		switch {
		case err != nil:
			return e, err
		case rec != nil && trust:
			return rec.Entry, nil
		case wait == nil && rec == nil && r.cfg.Draining():
			return e, fmt.Errorf("%w: %v: draining, so nothing was listed", ErrNotFound, k)
		case wait == nil:
			if e, wait, err = r.consult(ctx, k); wait == nil {
				return e, err
			}
		}
		if err := await(ctx, wait); err != nil {
			return e, err
		}
	}
}

func await(ctx context.Context, ch <-chan struct{}) error {
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// look returns what is known of k without a list: what is registered, what to wait for before looking again, or that it
// is held.
func (r *Registry[K, V]) look(k K) (*record[K, V], <-chan struct{}, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.holds[k]
	if h == nil {
		return r.live.load(k), nil, nil
	}
	if wait := h.waitLocked(); wait != nil {
		return nil, wait, nil
	}
	return nil, nil, h.heldLocked()
}

// consult answers k from a list that begins now or later. A channel says that k got into transition meanwhile: look
// again when it is closed.
func (r *Registry[K, V]) consult(ctx context.Context, k K) (Entry[K, V], <-chan struct{}, error) {
	rd := r.begin()
	defer r.end(rd)
	l, err := r.lists.Do(ctx, k)
	if err != nil {
		return Entry[K, V]{}, nil, unavailable(ctx, err)
	}
	f := r.apply(ctx, k, l, rd)
	if f.panicked != nil {
		panic(f.panicked)
	}
	return f.entry, f.wait, f.err
}

func (r *Registry[K, V]) begin() *reader {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fence.begin()
}

func (r *Registry[K, V]) end(rd *reader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fence.end(rd)
}

// unavailable says that the registry could not tell, unless it is the caller who left.
func unavailable(ctx context.Context, err error) error {
	if err == ctx.Err() {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// finding is what holds for a key after a list was applied to it: an entry, something to wait for before looking again,
// an error or a panic.
type finding[K comparable, V any] struct {
	entry    Entry[K, V]
	wait     <-chan struct{}
	err      error
	panicked *fresh.PanicError
	adopted  bool // by this very call
}

// apply brings k in line with l and says what then holds for it. Whatever it waited for, it judges again from the start,
// so that the younger fact wins.
func (r *Registry[K, V]) apply(ctx context.Context, k K, l *listing[K, V], rd *reader) finding[K, V] {
	var mine *flight[K, V]
	for {
		v := r.judge(k, l, rd)
		if v.dropped != nil {
			v.dropped.settle(nil)
			return finding[K, V]{err: &absentError[K]{k}}
		}
		if v.flight == nil {
			v.adopted = mine != nil && mine.adopted
			return v.finding
		}
		if v.starts {
			mine = v.flight
			r.launch(mine)
		}
		if err := r.awaitFlight(ctx, v.flight); err != nil {
			return finding[K, V]{err: err}
		}
		if v.flight.answers(l) {
			return finding[K, V]{err: v.flight.err, panicked: v.flight.panicked}
		}
	}
}

func (r *Registry[K, V]) awaitFlight(ctx context.Context, f *flight[K, V]) error {
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.base.Done():
		return fmt.Errorf("%w: adopt %v: %w", ErrUnavailable, f.key, fresh.ErrClosed)
	}
}

// verdict is a finding, or what has to be done first.
type verdict[K comparable, V any] struct {
	finding[K, V]
	dropped *Hold[K, V]   // to be settled
	flight  *flight[K, V] // to be waited for
	starts  bool          // the flight is new and has to be launched
}

// judge decides what l means for k at this moment.
func (r *Registry[K, V]) judge(k K, l *listing[K, V], rd *reader) (v verdict[K, V]) {
	now := r.cfg.Clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	value, listed := l.Items[k]
	tomb := r.fence.tombs[k]
	rec := r.live.load(k)
	switch h := r.holds[k]; {
	case h != nil:
		if v.wait = h.waitLocked(); v.wait == nil {
			v.err = h.heldLocked()
		}
	case rec != nil && (listed || !r.expendable(rec, l, now)):
		v.entry = rec.Entry
	case rec != nil && l.tells():
		v.dropped = r.dropLocked(rec)
	case tomb.seq > l.seq && !tomb.open:
		if listed {
			r.stats.Fenced++
		}
		v.err = &absentError[K]{k}
	case tomb.seq > l.seq && listed:
		r.stats.Fenced++
		v.wait = over()
	case listed:
		v.flight, v.starts, v.err = r.flightLocked(k, value, l.seq, rd)
	case l.tells():
		v.err = &absentError[K]{k}
	default:
		v.err = fmt.Errorf("%w: %v is not in the list, which was incomplete", ErrUnavailable, k)
	}
	return v
}

// over is what to wait for where nothing is left to wait for, but a younger list has to be asked.
func over() <-chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}

// expendable reports whether rec is old enough for its absence from l to count.
func (r *Registry[K, V]) expendable(rec *record[K, V], l *listing[K, V], now time.Time) bool {
	return rec.seq < l.seq && now.Sub(rec.since) >= r.cfg.Grace
}

// drop removes rec, unless another record or none has taken its place, and reports whether it did.
func (r *Registry[K, V]) drop(rec *record[K, V]) bool {
	r.mu.Lock()
	if r.live.load(rec.Key) != rec {
		r.mu.Unlock()
		return false
	}
	h := r.dropLocked(rec)
	r.mu.Unlock()
	h.settle(nil)
	return true
}

// dropLocked puts rec out of sight; the caller settles the hold, without the lock.
func (r *Registry[K, V]) dropLocked(rec *record[K, V]) *Hold[K, V] {
	h := r.holdLocked(rec.Key, rec)
	h.busy = true
	r.stats.Dropped++
	return h
}
