package registry

// Unlocked reports whether the lock can be had at this moment: for hooks, which must never be called under it.
func (r *Registry[K, V]) Unlocked() bool {
	if !r.mu.TryLock() {
		return false
	}
	r.mu.Unlock()
	return true
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
