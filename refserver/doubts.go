package refserver

import (
	"sync"
	"time"

	"github.com/benbjohnson/clock"
)

// doubtFor is how long an engine is given credit for finishing a create that it did not answer.
const doubtFor = 3 * time.Minute

// doubts remembers the ids whose create had no certain end: the engine may still be at it, so that their absence from one list
// does not free what they count.
type doubts struct {
	clock clock.Clock

	mu    sync.Mutex           // guards until
	until map[string]time.Time // the end of the doubt
}

// raise begins or prolongs the doubt about id.
func (d *doubts) raise(id string) {
	end := d.clock.Now().Add(doubtFor)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.until == nil {
		d.until = make(map[string]time.Time)
	}
	d.until[id] = end
}

// settle ends the doubt about id.
func (d *doubts) settle(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.until, id)
}

// has says whether id is in doubt, and forgets it when it has been for long enough.
func (d *doubts) has(id string) bool {
	now := d.clock.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	end, ok := d.until[id]
	if ok && !now.Before(end) {
		delete(d.until, id)
		return false
	}
	return ok
}
