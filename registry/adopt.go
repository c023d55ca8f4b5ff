package registry

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/registry/fresh"
)

// flight is one adoption in progress, shared by all who want its key. It is detached from those who wait for it.
type flight[K comparable, V any] struct {
	key   K
	value V      // as listed
	seq   uint64 // of the list
	rd    *reader

	settled  bool          // guarded by Registry.mu: the outcome is known, or it is too late for one
	done     chan struct{} // closed when settled; the fields below do not change any more then
	adopted  bool
	late     bool // over its budget; the key is free for another flight only when Adopt has returned
	err      error
	panicked *fresh.PanicError
}

// answers reports whether the outcome of f is one for a caller who got l. A successful adoption answers nobody, since the key
// is judged once more after it; a failed one says nothing to those with a younger list.
func (f *flight[K, V]) answers(l *listing[K, V]) bool {
	return f.late || f.panicked != nil || f.err != nil && f.seq >= l.seq
}

// flightLocked returns the flight of k, or a new one that the caller has to launch.
func (r *Registry[K, V]) flightLocked(k K, v V, seq uint64, rd *reader) (f *flight[K, V], starts bool, err error) {
	if f := r.flights[k]; f != nil {
		return f, false, nil
	}
	if r.base.Err() != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrUnavailable, fresh.ErrClosed)
	}
	f = &flight[K, V]{key: k, value: v, seq: seq, rd: rd, done: make(chan struct{})}
	rd.users++
	r.flights[k] = f
	r.works.Add(1)
	return f, true, nil
}

// launch flies f in its own goroutine, which Close waits for, or here if there is no Adopt to wait for.
func (r *Registry[K, V]) launch(f *flight[K, V]) {
	if r.cfg.Adopt == nil {
		r.fly(f)
		return
	}
	go r.fly(f)
}

// fly adopts, and settles f however that ends.
func (r *Registry[K, V]) fly(f *flight[K, V]) {
	defer r.works.Done()
	var err error
	returned := false
	defer func() {
		var panicked *fresh.PanicError
		if !returned {
			panicked = &fresh.PanicError{Value: recover(), Stack: debug.Stack()}
			if panicked.Value == nil {
				panicked.Value = fresh.ErrGoexit
			}
		}
		r.land(f, err, panicked)
	}()
	v, err := r.adopt(f)
	if err == nil {
		r.register(f, v)
	}
	returned = true
}

// adopt calls Config.Adopt under its budget.
func (r *Registry[K, V]) adopt(f *flight[K, V]) (V, error) {
	if r.cfg.Adopt == nil {
		return f.value, nil
	}
	ctx, cancel := context.WithCancelCause(r.base)
	defer cancel(nil)
	timer := r.cfg.Clock.AfterFunc(r.cfg.Budget, func() {
		r.expire(f)
		cancel(fresh.ErrBudget)
	})
	defer timer.Stop()
	return r.cfg.Adopt(ctx, f.key, f.value)
}

// register makes the adopted value visible, unless something younger than the list was faster.
func (r *Registry[K, V]) register(f *flight[K, V], v V) {
	r.mu.Lock()
	if f.settled {
		r.mu.Unlock()
		return
	}
	f.settled = true // from here on it is a matter of reporting, which has no budget
	if r.live.load(f.key) != nil || r.holds[f.key] != nil || r.fence.tombs[f.key].seq > f.seq {
		r.stats.Fenced++
		r.mu.Unlock()
		return
	}
	h := r.holdLocked(f.key, nil)
	h.busy = true
	r.mu.Unlock()
	h.settle(r.newRecord(f.key, v))
	f.adopted = true
}

// expire answers those who wait for f. What Adopt returns later is forgotten, so that its fence need not be kept.
func (r *Registry[K, V]) expire(f *flight[K, V]) {
	r.mu.Lock()
	if f.settled {
		r.mu.Unlock()
		return
	}
	f.settled, f.late = true, true
	f.err = fmt.Errorf("%w: adopt %v: %w of %v", ErrUnavailable, f.key, fresh.ErrBudget, r.cfg.Budget)
	r.stats.AdoptFailed++
	r.fence.end(f.rd)
	close(f.done)
	r.mu.Unlock()
	r.cfg.Logger.Warn("registry: adoption exceeded its budget", zap.Any("key", f.key), zap.Duration("budget", r.cfg.Budget))
}

// land ends f.
func (r *Registry[K, V]) land(f *flight[K, V], err error, panicked *fresh.PanicError) {
	r.mu.Lock()
	delete(r.flights, f.key)
	if !f.late {
		f.settled = true
		f.panicked = panicked
		r.concludeLocked(f, err)
		r.fence.end(f.rd)
		close(f.done)
	}
	r.mu.Unlock()
	switch {
	case panicked != nil:
		r.cfg.Logger.Error("registry: adoption panicked", zap.Any("key", f.key), zap.Any("panic", panicked.Value), zap.ByteString("stack", panicked.Stack))
	case err != nil && !errors.Is(err, ErrNotAdoptable):
		r.cfg.Logger.Warn("registry: adoption failed; the next list tries again", zap.Any("key", f.key), zap.Error(err))
	}
}

// concludeLocked counts the outcome and words it for those who wait.
func (r *Registry[K, V]) concludeLocked(f *flight[K, V], err error) {
	switch {
	case f.adopted:
		r.stats.Adopted++
	case f.panicked != nil:
		r.stats.AdoptFailed++
	case errors.Is(err, ErrNotAdoptable):
		r.stats.Declined++
		f.err = fmt.Errorf("%w: %v: %w", ErrNotFound, f.key, err)
	case err != nil:
		r.stats.AdoptFailed++
		f.err = fmt.Errorf("%w: adopt %v: %w", ErrUnavailable, f.key, err)
	}
}
