package sweep

import (
	"sync"
	"time"

	"github.com/benbjohnson/clock"
)

// Activity measures how long an object has not been used. Put one beside the rest of what you know about the object. It is safe for
// concurrent use, and must not be copied after first use. The zero Activity uses the real clock and counts from its first use.
type Activity struct {
	Clock clock.Clock // nil: the real one
	Start time.Time   // when the object was created: it is idle from then on; zero: from the first Begin or Idle

	mu   sync.Mutex // guards the fields below
	last time.Time  // end of the last activity; zero until first use
	pins int
}

// Begin pins the object, which is not idle until end is called. end(true) says that it was used, and idleness starts at zero.
// end(false) says that it was not, since a request failed or did no more than look: idleness is as long as if that had never
// come. The first call of end counts, later ones do nothing.
func (a *Activity) Begin() (end func(active bool)) {
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.startLocked(now)
	a.pins++
	var once sync.Once
	return func(active bool) { once.Do(func() { a.end(active) }) }
}

func (a *Activity) end(active bool) {
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pins--
	if active && now.After(a.last) {
		a.last = now
	}
}

// Pins returns how many calls of Begin have not been ended.
func (a *Activity) Pins() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pins
}

// Idle returns for how long the object has not been used, which is since Start if it never was. It is 0 while pinned, and never
// negative.
func (a *Activity) Idle() time.Duration {
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.startLocked(now)
	if a.pins > 0 {
		return 0
	}
	return max(0, now.Sub(a.last))
}

// startLocked settles when idleness began to count.
func (a *Activity) startLocked(now time.Time) {
	if !a.last.IsZero() {
		return
	}
	a.last = a.Start
	if a.last.IsZero() {
		a.last = now
	}
}

func (a *Activity) now() time.Time {
	if a.Clock == nil {
		return clock.New().Now()
	}
	return a.Clock.Now()
}
