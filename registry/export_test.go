package registry

// Unlocked reports whether the lock can be had at this moment: for hooks, which must never be called under it.
func (r *Registry[K, V]) Unlocked() bool {
	if !r.mu.TryLock() {
		return false
	}
	r.mu.Unlock()
	return true
}

// WhileLocked calls f under the lock: for what must not need it.
func (r *Registry[K, V]) WhileLocked(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// UsedBuckets returns how many buckets of the table have something in them.
func (r *Registry[K, V]) UsedBuckets() (n int) {
	all := r.live.buckets.Load().all
	for i := range all {
		if all[i].Load() != nil {
			n++
		}
	}
	return n
}
