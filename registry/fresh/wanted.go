package fresh

import (
	"maps"
	"slices"
)

// add counts a waiter, who waits on r.done as it is then, and what it wants.
func (r *run[K, T]) add(keys []K) {
	r.waiters++
	if r.came == crowd {
		r.full, r.done, r.came = append(r.full, r.done), make(chan struct{}), 0
	}
	r.came++
	if len(keys) == 0 {
		r.everything++
		return
	}
	if r.wanted == nil {
		r.wanted = make(map[K]int, len(keys))
	}
	for _, k := range keys {
		r.wanted[k]++
	}
}

func (r *run[K, T]) remove(keys []K) {
	if len(keys) == 0 {
		r.everything--
	}
	for _, k := range keys {
		if r.wanted[k]--; r.wanted[k] == 0 {
			delete(r.wanted, k)
		}
	}
}

// addOnly is add for a run that nobody else will join. It needs no map for one key.
func (r *run[K, T]) addOnly(keys []K) {
	if len(keys) != 1 {
		r.add(keys)
		return
	}
	r.waiters = 1
	r.only[0] = keys[0]
}

// union returns the keys that the waiters want, each once; nil if one of them wants everything.
func (r *run[K, T]) union() []K {
	switch {
	case r.everything > 0:
		return nil
	case r.wanted == nil:
		return r.only[:]
	}
	return slices.Collect(maps.Keys(r.wanted))
}

// mustHash panics on a key that no map can have, as an interface may hold one, before its caller is counted.
func mustHash[K comparable](keys []K) {
	var none map[K]bool
	for _, k := range keys {
		_ = none[k]
	}
}
