package refserver

import (
	"sync"
	"time"

	"github.com/benbjohnson/clock"
)

// latch keeps a server that drains from taking on more. It is never released: who drained a server means to end it.
type latch struct {
	clock clock.Clock

	mu       sync.Mutex // guards the fields below
	since    time.Time  // the first moment; zero: not draining
	lingered bool       // takeLinger has been true
}

// begin drains, if that has not begun, and returns when it has.
func (l *latch) begin() time.Time {
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since.IsZero() {
		l.since = now
	}
	return l.since
}

func (l *latch) began() (since time.Time, draining bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.since, !l.since.IsZero()
}

func (l *latch) draining() bool {
	_, draining := l.began()
	return draining
}

// takeLinger is true once: when draining has gone on for longer than limit, unless that is 0.
func (l *latch) takeLinger(limit time.Duration) bool {
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if limit == 0 || l.lingered || l.since.IsZero() || now.Sub(l.since) <= limit {
		return false
	}
	l.lingered = true
	return true
}

func (l *latch) hasLingered() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lingered
}
