package registry

// Unlocked reports whether the lock can be had at this moment: for hooks, which must never be called under it.
func (r *Registry[K, V]) Unlocked() bool {
	if !r.mu.TryLock() {
		return false
	}
	r.mu.Unlock()
	return true
}
