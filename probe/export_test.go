package probe

// Unlocked reports whether the lock can be had at this moment: for whatever the probe calls, which must never be under it.
func (p *Probe[T]) Unlocked() bool {
	if !p.mu.TryLock() {
		return false
	}
	p.mu.Unlock()
	return true
}

// WhileLocked calls f under the lock: for what must not need it.
func (p *Probe[T]) WhileLocked(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}
