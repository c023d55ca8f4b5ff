package registry

import (
	"hash/maphash"
	"iter"
	"sync/atomic"
)

const firstBuckets = 8

// table maps keys to records. It is written under Registry.mu and read without: a bucket is replaced as a whole, so that a
// reader sees it as it was at one moment. It does the work of a sync.Map without the way through any, which a hit would
// notice.
type table[K comparable, V any] struct {
	seed    maphash.Seed
	buckets atomic.Pointer[buckets[K, V]]
	records int // guarded by Registry.mu
}

// buckets are as many as a power of two, and no fewer than the records in them.
type buckets[K comparable, V any] []atomic.Pointer[link[K, V]]

// link is one record in a bucket; it does not change.
type link[K comparable, V any] struct {
	*record[K, V]
	next *link[K, V]
}

func (t *table[K, V]) init() {
	t.seed = maphash.MakeSeed()
	t.buckets.Store(new(make(buckets[K, V], firstBuckets)))
}

func (b buckets[K, V]) of(seed maphash.Seed, k K) *atomic.Pointer[link[K, V]] {
	return &b[maphash.Comparable(seed, k)&uint64(len(b)-1)]
}

func (t *table[K, V]) load(k K) *record[K, V] {
	for l := t.buckets.Load().of(t.seed, k).Load(); l != nil; l = l.next {
		if l.Key == k {
			return l.record
		}
	}
	return nil
}

// addLocked adds rec, whose key is absent.
func (t *table[K, V]) addLocked(rec *record[K, V]) {
	if t.records == len(*t.buckets.Load()) {
		t.growLocked()
	}
	t.records++
	b := t.buckets.Load().of(t.seed, rec.Key)
	b.Store(&link[K, V]{rec, b.Load()})
}

// growLocked doubles the buckets; the old ones stay as they are for those who are reading them.
func (t *table[K, V]) growLocked() {
	old := *t.buckets.Load()
	grown := make(buckets[K, V], len(old)+len(old))
	for rec := range t.all() {
		b := grown.of(t.seed, rec.Key)
		b.Store(&link[K, V]{rec, b.Load()})
	}
	t.buckets.Store(&grown)
}

// removeLocked removes k, which is present.
func (t *table[K, V]) removeLocked(k K) {
	t.records--
	b := t.buckets.Load().of(t.seed, k)
	var rest *link[K, V]
	for l := b.Load(); l != nil; l = l.next {
		if l.Key != k {
			rest = &link[K, V]{l.record, rest}
		}
	}
	b.Store(rest)
}

// all iterates over the records in no particular order.
func (t *table[K, V]) all() iter.Seq[*record[K, V]] {
	return func(yield func(*record[K, V]) bool) {
		all := *t.buckets.Load()
		for i := range all {
			for l := all[i].Load(); l != nil; l = l.next {
				if !yield(l.record) {
					return
				}
			}
		}
	}
}
