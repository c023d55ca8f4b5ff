// Package quota keeps a burst of creates from passing a cap.
//
// The fault it prevents: ten requests look at how many objects there are, all in the second before the first new one appears,
// and all find the room that was for one of them. The usual repair is to count up before a create and down after a removal. Then
// some path forgets to count down, and the number does not show whether it is too high or a create just takes its time.
//
// A [Ledger] counts claims instead, each under a key of its own. A claim is counted from [Ledger.Reserve] until the [Token]
// it returned is released, whatever happens in between: while it is in flight, while it lives, and while it is being torn
// down. [Ledger.Holders] lists them all, each with its state and the time when it came into that.
//
// # What it promises
//
//   - Reserve looks at the key and all limits in one atomic step. However many calls race, as many claims are admitted as fit, and
//     no more.
//   - A token is released once. Later calls, also through copies, also after the key was reserved anew, change nothing.
//   - An object that was found rather than created always gets a token ([Ledger.Adopt]). One that has vanished loses its own only
//     to a list that left nothing out and was begun when the claim was live already ([Ledger.Reconcile]).
//
// # What it leaves out
//
// It never waits for room: a full ledger answers at once, and waiting is the caller's. It starts no goroutine, calls nothing
// while it holds its lock, and knows only this process: two replicas with a limit of ten admit twenty.
package quota

import (
	"fmt"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"
)

// Limit bounds what claims of type C use together, or use together under each of many keys. The zero Limit is no good: New wants
// a name, and a Max of 0 admits nothing.
//
// Key, Cost and MaxFor are called by Reserve and Adopt before the ledger takes its lock: they may be slow and may call the
// ledger, and they must be safe for concurrent use. Their answers may change: the next Reserve goes by them, and a claim
// gives back exactly what it was charged.
type Limit[C any] struct {
	Name   string                 // tells limits apart in errors and Stats; required
	Max    int64                  // the most that may be used under one key; 0 admits nothing
	MaxFor func(key string) int64 // overrides Max, asked each time; a negative answer is 0
	Key    func(C) string         // what the claim counts against, such as its tenant; nil: one key, "", for all
	Cost   func(C) int64          // how much it uses; nil: 1. A claim that costs 0 is not subject to the limit
}

// Config says how a Ledger tells the time and whom it informs. Both may be left out: the zero Config is ready to use.
type Config struct {
	Clock  clock.Clock // tells since when a claim is in its state; nil: the real one
	Logger *zap.Logger // told of adoptions past a limit and of claims that Reconcile freed; nil: nobody
}

// Ledger knows all claims that count, of type C and with one key each, and whether another fits. It is made by New: Reserve and Adopt
// panic on the zero Ledger. It is safe for concurrent use and needs no Close. It keeps the memory of the most claims it has ever
// counted at once, so that Reserve need not allocate.
type Ledger[K comparable, C any] struct {
	clock  clock.Clock
	log    *zap.Logger
	limits []Limit[C]

	mu         sync.Mutex         // guards the fields below and those of every slot; nothing is called while it is held
	slots      map[K]*slot[K, C]  // what is counted
	used       []map[string]int64 // by position in limits, then by key; without zeros
	free       *slot[K, C]        // released slots, for reuse
	admissions uint64             // numbers the admissions, so that a token knows its own from a later one of the same slot
	moment     Mark               // numbers the moments at which a claim became live
	stats      Stats              // without Used
}

// slot is a place for one counted claim. Tokens point to it, also when it is free or stands for another claim.
type slot[K comparable, C any] struct {
	ledger      *Ledger[K, C] // never written again: tokens read it without the lock
	entry[K, C]               // guarded by ledger.mu
}

// entry is what a slot holds.
type entry[K comparable, C any] struct {
	admission uint64 // 0 while free
	key       K
	claim     C
	state     State
	since     time.Time
	lived     Mark        // the moment it last became live, or was last adopted
	charges   []charge    // by position in limits
	next      *slot[K, C] // in the free list
}

// inline is how many limits a Reserve can look at without allocating.
const inline = 8

// New makes a Ledger that counts nothing yet, and to which all limits apply together. Without limits it refuses duplicates only.
// It panics if a limit has no name, the name of another, or a negative Max.
func New[K comparable, C any](cfg Config, limits ...Limit[C]) *Ledger[K, C] {
	if cfg.Clock == nil {
		cfg.Clock = clock.New()
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	l := &Ledger[K, C]{clock: cfg.Clock, log: cfg.Logger, slots: make(map[K]*slot[K, C])}
	names := make(map[string]bool, len(limits))
	for i, lim := range limits {
		switch {
		case lim.Name == "":
			panic(fmt.Sprintf("quota: limit %d has no name", i+1))
		case names[lim.Name]:
			panic(fmt.Sprintf("quota: two limits are named %q", lim.Name))
		case lim.Max < 0:
			panic(fmt.Sprintf("quota: limit %q: negative maximum %d", lim.Name, lim.Max))
		}
		names[lim.Name] = true
		l.limits = append(l.limits, lim)
		l.used = append(l.used, make(map[string]int64))
	}
	return l
}

// Reserve counts k as in flight, in one atomic step: if k is counted already the error is a *DuplicateError, whatever the
// limits say; if a limit has no room it is an *ExceededError naming the first such limit, and nothing is counted anywhere.
// It does not allocate once the ledger has been as full before. It panics if the claim has a negative cost, or if k is not
// equal to itself, as NaN is not.
func (l *Ledger[K, C]) Reserve(k K, c C) (Token[K, C], error) {
	l.check(k)
	var room [inline]charge
	charges := l.price(room[:0], c)
	now := l.clock.Now()

	l.mu.Lock()
	defer l.mu.Unlock()
	if s, ok := l.slots[k]; ok {
		l.stats.Duplicates++
		return Token[K, C]{}, &DuplicateError{Key: k, State: s.state, Since: s.since}
	}
	for i, ch := range charges {
		// Subtracting cannot overflow, as adding a huge cost would: both sides are at least 0.
		if used := l.used[i][ch.key]; ch.cost > 0 && ch.cost > ch.max-used {
			l.stats.Exceeded++
			return Token[K, C]{}, &ExceededError{Limit: l.limits[i].Name, Key: ch.key, Max: ch.max, Used: used, Want: ch.cost}
		}
	}
	s := l.admitLocked(k)
	l.chargeLocked(s, c, charges)
	s.state, s.since = InFlight, now
	l.stats.Reserved++
	return s.tokenLocked(), nil
}

// Adopt counts k as live in any case: for an object that exists, whether or not there is room. A limit that is passed by it admits
// nothing until enough has been released. If k is counted already, in whatever state, that token becomes live and is counted as c
// from now on; a list that began before this call cannot free it. It panics as Reserve does.
func (l *Ledger[K, C]) Adopt(k K, c C) Token[K, C] {
	l.check(k)
	var room [inline]charge
	charges := l.price(room[:0], c)
	now := l.clock.Now()
	t, over := l.adopt(k, c, charges, now)
	for _, e := range over {
		l.log.Warn("quota: adopted past a limit", zap.String("limit", e.Limit), zap.String("key", e.Key),
			zap.Int64("max", e.Max), zap.Int64("used", e.Used))
	}
	return t
}

func (l *Ledger[K, C]) adopt(k K, c C, charges []charge, now time.Time) (Token[K, C], []ExceededError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.slots[k]
	if ok {
		l.refundLocked(s)
	} else {
		s = l.admitLocked(k)
		l.stats.Adopted++
	}
	l.chargeLocked(s, c, charges)
	l.liveLocked(s, now)
	var over []ExceededError
	for i, ch := range s.charges {
		if used := l.used[i][ch.key]; ch.cost > 0 && used > ch.max {
			over = append(over, ExceededError{Limit: l.limits[i].Name, Key: ch.key, Max: ch.max, Used: used})
		}
	}
	return s.tokenLocked(), over
}

// Get looks up the token of a key that is counted, and returns false for any other.
func (l *Ledger[K, C]) Get(k K) (Token[K, C], bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.slots[k]
	if !ok {
		return Token[K, C]{}, false
	}
	return s.tokenLocked(), true
}

// check panics on what cannot be a key, before anything is locked.
func (l *Ledger[K, C]) check(k K) {
	if l.slots == nil {
		panic("quota: the Ledger was not made by New")
	}
	if again := k; again != k {
		panic(fmt.Sprintf("quota: key %v is not equal to itself", k))
	}
}

// admitLocked enters a slot for k, which is not counted yet.
func (l *Ledger[K, C]) admitLocked(k K) *slot[K, C] {
	s := l.free
	if s == nil {
		s = &slot[K, C]{ledger: l}
	} else {
		l.free, s.next = s.next, nil
	}
	l.admissions++
	s.admission, s.key = l.admissions, k
	l.slots[k] = s
	return s
}

// releaseLocked frees s and ends its admission.
func (l *Ledger[K, C]) releaseLocked(s *slot[K, C]) {
	l.refundLocked(s)
	delete(l.slots, s.key)
	s.entry = entry[K, C]{charges: s.charges[:0], next: l.free}
	l.free = s
}

// liveLocked makes s live as of a new moment.
func (l *Ledger[K, C]) liveLocked(s *slot[K, C], now time.Time) {
	if s.state != Live {
		s.state, s.since = Live, now
	}
	l.moment++
	s.lived = l.moment
}
