package quota

// Unlocked reports whether the lock can be had at this moment: for whatever the ledger calls, which must never be under it.
func (l *Ledger[K, C]) Unlocked() bool {
	if !l.mu.TryLock() {
		return false
	}
	l.mu.Unlock()
	return true
}

// WhileLocked calls f under the lock.
func (l *Ledger[K, C]) WhileLocked(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}
