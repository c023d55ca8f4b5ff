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
	buckets atomic.Pointer[buckets[K, V]]
	records int // guarded by Registry.mu
}

// buckets are as many as a power of two, and no fewer than the records in them.
type buckets[K comparable, V any] struct {
	seed maphash.Seed
	all  []atomic.Pointer[link[K, V]]
}

// link is one record in a bucket; it does not change.
type link[K comparable, V any] struct {
	*record[K, V]
	next *link[K, V]
}

func (t *table[K, V]) init() {
	t.buckets.Store(&buckets[K, V]{maphash.MakeSeed(), make([]atomic.Pointer[link[K, V]], firstBuckets)})
}

func (b *buckets[K, V]) of(k K) *atomic.Pointer[link[K, V]] {
	return &b.all[maphash.Comparable(b.seed, k)&uint64(len(b.all)-1)]
}

// add puts rec, whose key is absent, in front of its bucket.
func (b *buckets[K, V]) add(rec *record[K, V]) {
	at := b.of(rec.Key)
	at.Store(&link[K, V]{rec, at.Load()})
}

func (t *table[K, V]) load(k K) *record[K, V] {
	for l := t.buckets.Load().of(k).Load(); l != nil; l = l.next {
		if l.Key == k {
			return l.record
		}
	}
	return nil
}

// addLocked adds rec, whose key is absent.
func (t *table[K, V]) addLocked(rec *record[K, V]) {
	if t.records == len(t.buckets.Load().all) {
		t.growLocked()
	}
	t.records++
	t.buckets.Load().add(rec)
}

// growLocked doubles the buckets; the old ones stay as they are for those who are reading them.
func (t *table[K, V]) growLocked() {
	old := t.buckets.Load()
	grown := &buckets[K, V]{old.seed, make([]atomic.Pointer[link[K, V]], len(old.all)+len(old.all))}
	for rec := range t.each() {
		grown.add(rec)
	}
	t.buckets.Store(grown)
}

// removeLocked removes k, which is present.
func (t *table[K, V]) removeLocked(k K) {
	t.records--
	at := t.buckets.Load().of(k)
	var rest *link[K, V]
	for l := at.Load(); l != nil; l = l.next {
		if l.Key != k {
			rest = &link[K, V]{l.record, rest}
		}
	}
	at.Store(rest)
}

// each iterates over the records in no particular order.
func (t *table[K, V]) each() iter.Seq[*record[K, V]] {
	return func(yield func(*record[K, V]) bool) {
		b := t.buckets.Load()
		for i := range b.all {
			for l := b.all[i].Load(); l != nil; l = l.next {
				if !yield(l.record) {
					return
				}
			}
		}
	}
}
