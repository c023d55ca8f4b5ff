// Package registry remembers which objects there are in a backend, and never lets old news overrule new.
//
// The fault it prevents: a program keeps a map of objects that live elsewhere, and the map goes wrong. An object that is
// alive is "not found", because a list was joined that began too early, or one that failed was read as empty. An object
// that was destroyed is back, because a list from before that was applied after it. Or a thousand requests for the same
// object make a thousand lists.
//
// A [Registry] answers a hit from memory. For a miss it makes a list, or shares one that has not begun yet (package fresh), and
// it adopts what that list shows. Whoever creates or destroys an object holds its key ([Registry.Hold], [Registry.Take]):
// while a key is held it is neither listed, nor adopted, nor dropped.
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
	// ErrNotFound means that there is no such object, by a list begun after the question or by a removal here that is later still.
	// From Take, and while draining, it means that there is no entry: neither makes a list.
	ErrNotFound = errors.New("registry: not found")
	// ErrExists is Hold's refusal of a key that has an entry.
	ErrExists = errors.New("registry: exists")
	// ErrUnavailable means that nobody knows whether there is such an object. It wraps the cause, where a list or adoption failed.
	ErrUnavailable = errors.New("registry: unavailable")
	// ErrNotAdoptable is for Config.Adopt to return, wrapped or as it is, for an object that is not to be registered. To Resolve the
	// object is then absent: its error wraps ErrNotFound, and the error of Adopt too.
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

// Snapshot is what a list found. A key that is not in Items is taken for absent if the list was Complete or was told to look for
// that key. The zero Snapshot has no items, and does not mean that there are none.
type Snapshot[K comparable, V any] struct {
	Items    map[K]V // read-only once returned
	Complete bool    // everything there is has been listed
}

// Entry is what is registered for a key, from Fill or adoption until it is dropped or released.
type Entry[K comparable, V any] struct {
	Key     K
	Value   V
	Version uint64 // tells this entry from all others that this registry has or had
}

// Event is the news that a key has got an entry or lost it. It comes while nobody can look the entry up: not yet in the first case,
// no more in the second. Of two events in a row for one key, one is Present and one is not.
type Event[K comparable, V any] struct {
	Entry[K, V]
	Present bool // true for an entry that was adopted or filled, false for one that is gone
	Local   bool // true if a Hold of the caller's did it, by Fill or Release, false if the registry adopted or dropped
}

// Config says how a Registry follows the backend. The zero Config is usable: what is listed is registered as it is.
type Config[K comparable, V any] struct {
	// Adopt turns what was listed into what is registered; nil means as listed. Its context is one of Base, bounded by
	// Budget, and it is never called for a key while a call for the same key is at work. An error that wraps
	// ErrNotAdoptable declines (a stopped object, say); any other is logged, answered as ErrUnavailable, and tried again at
	// the next list. A value that it returns too late, after its budget or when the key has been filled or released
	// meanwhile, is forgotten. It must not wait for its own key, nor call Close.
	Adopt func(ctx context.Context, k K, v V) (V, error)
	// Observe gets all events, those of one key in the order in which they came about; nil means nobody. No lock is held
	// during the call. It may use the registry, but must not wait for the very key it is told about, nor call Close. If it
	// panics about an addition, there is no addition; a removal is made all the same. The panic goes to whoever made it.
	Observe func(Event[K, V])
	// Draining, while it returns true, keeps misses and Sync from making lists, and so from adopting anything. nil: it never does.
	Draining func() bool
	// Grace is how long an entry is safe from being dropped by a list that lacks it. 0 means 30 s, negative not at all. A clock
	// that is set back makes it longer, and one that jumps ahead ends it.
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

// Registry is a map of objects by key that follows a backend. It is made by New, and the zero Registry is not usable. It is safe
// for concurrent use, and has no goroutine while nothing is listed or adopted.
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

// New makes a Registry without entries. It learns of the backend through list, which gets the keys that are looked for, as described
// at fresh.New, or nil to list all. If list cannot find out it must return an error: an empty Snapshot says something else.
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
	r.fence.tombs = make(map[K]tomb[K])
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

// Lookup returns the entry of k, if it has one, from memory alone. It takes no lock and does not allocate.
func (r *Registry[K, V]) Lookup(k K) (e Entry[K, V], ok bool) {
	rec := r.live.load(k)
	if rec == nil {
		return e, false
	}
	return rec.Entry, true
}

// Invalidate is for whoever used e and found the object dead. It drops e, unless its key has another entry by now, or none, or is
// held, and reports whether it did.
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

// All iterates over the entries in no particular order, and holds no lock meanwhile, so that the loop body may do anything to
// the registry. An entry that comes or goes during the iteration may be seen or not.
func (r *Registry[K, V]) All() iter.Seq[Entry[K, V]] {
	return func(yield func(Entry[K, V]) bool) {
		for rec := range r.live.each() {
			if !yield(rec.Entry) {
				return
			}
		}
	}
}

// Stats returns what has been counted since New, and how much there is now. Hits are too cheap to be counted.
func (r *Registry[K, V]) Stats() Stats {
	r.mu.Lock()
	s := r.stats
	s.Entries, s.Held, s.Tombstones = r.live.records, len(r.holds), len(r.fence.tombs)
	r.mu.Unlock()
	s.Lists = r.lists.Stats()
	return s
}

// Close cancels what is being listed or adopted and returns when all of it has returned. Whoever waits for it, or asks later for
// what would need a list, gets an error that is ErrUnavailable, and no new Hold is given. Existing holds can be ended, and Lookup
// and Take work as before, so that a program can still tidy up. It may be called twice.
func (r *Registry[K, V]) Close() {
	r.mu.Lock()
	r.cancel(fresh.ErrClosed)
	r.mu.Unlock()
	r.lists.Close()
	r.works.Wait()
}

// Stats is how much a Registry has now and has done since New. The zero Stats is that of a new one.
type Stats struct {
	Entries     int    // registered now
	Held        int    // keys in transition now
	Tombstones  int    // removals, and holds that came to nothing, of which a list in progress may not know; 0 when there is none
	Misses      uint64 // calls of Resolve that missed, and of Refresh
	Adopted     uint64
	Declined    uint64 // by Adopt, with ErrNotAdoptable
	AdoptFailed uint64
	Dropped     uint64 // by Sync, Refresh and Invalidate
	Fenced      uint64 // adoptions and drops left out since the key had changed here after the list began
	Lists       fresh.Stats
}
