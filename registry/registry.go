// Package registry caches what a backend owns without ever mistaking an old answer for a new one.
//
// The fault it prevents: a cache of objects that live elsewhere answers "not found" for one that is alive, because it
// joined a list that began too early or read a failed list as an empty one; brings back one that was destroyed, because
// a list from before the destroy was applied after it; or lists the backend once per caller.
//
// A [Registry] answers a hit from memory. A miss is answered by a list that began after it, shared by everybody who
// misses meanwhile (package fresh), and what that list shows running is adopted. Whoever creates or destroys an object
// holds its key ([Registry.Hold], [Registry.Take]): while a key is held it is neither listed, nor adopted, nor dropped.
// Every local change is fenced: a list that began before it can undo nothing of it, however late it is applied.
//
// Absence counts only if the list says that it is complete, or was asked for the key by name, and only for entries
// written before it began and older than [Config.Grace]. What could not be determined is [ErrUnavailable], never
// [ErrNotFound].
//
// What it leaves to the caller: creating and destroying, limits (see Config.Observe for keeping a quota in step), and
// deciding when an object has to go. It never evicts an entry for size or age.
package registry

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/registry/fresh"
)

var (
	// ErrNotFound is returned when a list that began after the call, or a younger local fact, says that the key is absent.
	ErrNotFound = errors.New("registry: not found")
	// ErrExists is returned by Hold when the key is registered.
	ErrExists = errors.New("registry: exists")
	// ErrUnavailable is returned when the registry could not tell; it wraps the error of the list or adoption, if any.
	ErrUnavailable = errors.New("registry: unavailable")
	// ErrNotAdoptable is returned by Config.Adopt to decline; Resolve then returns an error that is both ErrNotFound and the callback's error.
	ErrNotAdoptable = errors.New("registry: not adoptable")
)

// absentError is ErrNotFound for a key. Its text is made when it is read: most callers only ask what it is.
type absentError[K comparable] struct{ key K }

func (e *absentError[K]) Error() string { return fmt.Sprintf("%v: %v", ErrNotFound, e.key) }
func (e *absentError[K]) Unwrap() error { return ErrNotFound }

const (
	defaultBudget = 15 * time.Second
	defaultGrace  = 30 * time.Second
	defaultCap    = 0.5
)

// Snapshot is one answer of the backend. The absence of a key is believed if Complete, or if the key was asked for by
// name. The zero Snapshot lists nothing and proves nothing.
type Snapshot[K comparable, V any] struct {
	Items    map[K]V // read-only once returned
	Complete bool    // everything there is has been listed
}

// Entry is one incarnation of a key.
type Entry[K comparable, V any] struct {
	Key     K
	Value   V
	Version uint64 // unique in this registry, never reused
}

// Event tells one change of one key, while that key is still in transition: before an entry becomes visible, after it
// has ceased to be. The events of a key alternate between present and not.
type Event[K comparable, V any] struct {
	Entry[K, V]
	Present bool // adopted or filled; otherwise dropped or released
	Local   bool // a Hold did it (filled, released); otherwise the registry (adopted, dropped)
}

// Config holds the optional settings of a Registry. The zero Config is usable.
type Config[K comparable, V any] struct {
	// Adopt turns what was listed into what is registered, under Base and Budget and once at a time per key. nil means
	// as listed. An error that wraps ErrNotAdoptable declines (a stopped object, say); any other is logged, answered as
	// ErrUnavailable, and tried again at the next list. A value that it returns too late, after its budget or when the
	// key has been filled or released meanwhile, is forgotten. It must not wait for its own key, nor call Close.
	Adopt func(ctx context.Context, k K, v V) (V, error)
	// Observe is told of every change, in order per key and never under a lock; nil means nobody. It may use the
	// registry, but must not wait for the very key it is told about. If it panics about an addition, there is no
	// addition, and the panic goes to whoever made it.
	Observe func(Event[K, V])
	// Draining is asked on a miss and by Sync; while true neither begins a list or, with it, an adoption. nil: never.
	Draining func() bool
	// Grace is the age below which absence drops nothing; 0 means 30 s, negative none.
	Grace time.Duration
	// Cap is the share of the registered entries that one Sync may drop, rounded up: above it Sync drops none and
	// returns a *CapError. 0 means half; 1 or more, all. New panics if it is negative.
	Cap float64

	Base        context.Context // as in fresh.Config; of adoptions too
	Budget      time.Duration   // as in fresh.Config; of one adoption too
	MinInterval time.Duration   // as in fresh.Config
	Clock       clock.Clock     // measures Grace too; nil: the real one
	Logger      *zap.Logger     // nil: silent
}

// Registry is a cache in front of the backend that list asks. Use New; the zero Registry is not usable.
// It is safe for concurrent use and has no goroutine while nothing is listed or adopted.
type Registry[K comparable, V any] struct {
	cfg    Config[K, V]
	lists  *fresh.Coalescer[K, *listing[K, V]]
	base   context.Context // parent of every list and adoption
	cancel context.CancelCauseFunc

	live    table[K, V]    // written under mu, read without
	version atomic.Uint64  // of the latest record
	works   sync.WaitGroup // one for each adoption in progress; added to under mu and never once base has ended

	mu      sync.Mutex // guards the fields below; no callback, list or log call is made under it
	holds   map[K]*Hold[K, V]
	flights map[K]*flight[K, V]
	fence   fence[K]
	stats   Stats // the counters of what happened
}

// record is what is registered for a key; it is never changed once stored.
type record[K comparable, V any] struct {
	Entry[K, V]
	seq   uint64    // when it was written, by the fence
	since time.Time // when it was first registered
}

// listing is a Snapshot with what decides how far it is believed.
type listing[K comparable, V any] struct {
	Snapshot[K, V]
	seq   uint64 // when it began, by the fence
	named bool   // it was asked for the keys of all who get it
}

// tells reports whether the absence of a key that was asked for means anything.
func (l *listing[K, V]) tells() bool { return l.Complete || l.named }

// New returns an empty Registry in front of the backend that list asks; keys is as in fresh.New. An error means that
// the backend could not tell: an empty Snapshot must never stand for one.
//
// New panics if list is nil or a setting is out of its range.
func New[K comparable, V any](list func(ctx context.Context, keys []K) (Snapshot[K, V], error), cfg Config[K, V]) *Registry[K, V] {
	if list == nil {
		panic("registry: nil list")
	}
	if cfg.Budget < 0 || cfg.MinInterval < 0 || !(cfg.Cap >= 0) {
		panic(fmt.Sprintf("registry: negative Budget %v, MinInterval %v or Cap %v", cfg.Budget, cfg.MinInterval, cfg.Cap))
	}
	cfg = withDefaults(cfg)
	r := &Registry[K, V]{cfg: cfg, holds: make(map[K]*Hold[K, V]), flights: make(map[K]*flight[K, V])}
	r.live.init()
	r.fence.tombs = make(map[K]uint64)
	r.base, r.cancel = context.WithCancelCause(cfg.Base)
	r.lists = fresh.New(func(ctx context.Context, keys []K) (*listing[K, V], error) {
		r.mu.Lock()
		seq := r.fence.tick()
		r.mu.Unlock()
		snap, err := list(ctx, keys)
		return &listing[K, V]{snap, seq, keys != nil}, err
	}, fresh.Config{Base: r.base, Budget: cfg.Budget, MinInterval: cfg.MinInterval, Clock: cfg.Clock, Logger: cfg.Logger})
	return r
}

func withDefaults[K comparable, V any](cfg Config[K, V]) Config[K, V] {
	if cfg.Observe == nil {
		cfg.Observe = func(Event[K, V]) {}
	}
	if cfg.Draining == nil {
		cfg.Draining = func() bool { return false }
	}
	if cfg.Grace == 0 {
		cfg.Grace = defaultGrace
	}
	if cfg.Cap == 0 {
		cfg.Cap = defaultCap
	}
	if cfg.Base == nil {
		cfg.Base = context.Background()
	}
	if cfg.Budget == 0 {
		cfg.Budget = defaultBudget
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.New()
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	return cfg
}

// Lookup returns the registered entry; no lock, no allocation, no list.
func (r *Registry[K, V]) Lookup(k K) (e Entry[K, V], ok bool) {
	rec := r.live.load(k)
	if rec == nil {
		return e, false
	}
	return rec.Entry, true
}

// Invalidate drops e if it is still what is registered, and reports whether it was: for a data plane that found it dead.
func (r *Registry[K, V]) Invalidate(e Entry[K, V]) bool {
	for {
		rec := r.live.load(e.Key)
		if rec == nil || rec.Version != e.Version {
			return false
		}
		if r.drop(rec) {
			return true
		}
	}
}

// All iterates over the entries in no particular order; the loop body may call the registry. Entries that come or go
// meanwhile may be seen or not.
func (r *Registry[K, V]) All() iter.Seq[Entry[K, V]] {
	return func(yield func(Entry[K, V]) bool) {
		for rec := range r.live.each() {
			if !yield(rec.Entry) {
				return
			}
		}
	}
}

// Stats returns a snapshot of the counters; hits are not counted.
func (r *Registry[K, V]) Stats() Stats {
	r.mu.Lock()
	s := r.stats
	s.Entries, s.Held, s.Tombstones = r.live.records, len(r.holds), len(r.fence.tombs)
	r.mu.Unlock()
	s.Lists = r.lists.Stats()
	return s
}

// Close ends lists and adoptions and waits for them: whoever waits gets an error that is ErrUnavailable. Hold is
// refused from then on; Lookup, Take and the holds that are out keep working. It may be called twice.
func (r *Registry[K, V]) Close() {
	r.mu.Lock()
	r.cancel(fresh.ErrClosed)
	r.mu.Unlock()
	r.lists.Close()
	r.works.Wait()
}

// Stats counts what a Registry has and did.
type Stats struct {
	Entries     int    // registered now
	Held        int    // keys in transition now
	Tombstones  int    // removals remembered for the lists in progress; 0 when quiet
	Misses      uint64 // calls of Resolve that missed, and of Refresh
	Adopted     uint64
	Declined    uint64 // by Adopt, with ErrNotAdoptable
	AdoptFailed uint64
	Dropped     uint64 // by Sync, Refresh and Invalidate
	Fenced      uint64 // adoptions and drops not made because of a younger local fact
	Lists       fresh.Stats
}
