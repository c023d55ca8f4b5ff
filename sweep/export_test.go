package sweep

// Unlocked reports whether the lock can be had at this moment: for whatever the loop calls, which must never be under it.
func (l *Loop) Unlocked() bool {
	if !l.mu.TryLock() {
		return false
	}
	l.mu.Unlock()
	return true
}
