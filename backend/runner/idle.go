package runner

import (
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// idleClock tells for how long nothing was done. It starts when it is made. Work that is under way stops it, and its end starts it
// anew, unless the work came to nothing.
type idleClock struct {
	clock clock.Clock

	mu      sync.Mutex // guards the fields below
	pins    int        // requests under way
	running int        // processes that have not ended
	last    time.Time  // when the last work ended
}

func newIdleClock(c clock.Clock) *idleClock { return &idleClock{clock: c, last: c.Now()} }

func (c *idleClock) pin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pins++
}

func (c *idleClock) unpin(worked bool) {
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pins--
	if worked {
		c.touchLocked(now)
	}
}

func (c *idleClock) processStarted() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running++
}

func (c *idleClock) processEnded() {
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	c.touchLocked(now)
}

// touchLocked never moves back: the time was read before the lock was taken.
func (c *idleClock) touchLocked(now time.Time) {
	if now.After(c.last) {
		c.last = now
	}
}

func (c *idleClock) activity() wire.Activity {
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	a := wire.Activity{Running: c.running, Pins: c.pins}
	if c.running == 0 && c.pins == 0 {
		a.IdleMS = max(now.Sub(c.last).Milliseconds(), 0)
	}
	return a
}
