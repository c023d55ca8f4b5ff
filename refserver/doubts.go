package refserver

import (
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/backend"
)

// doubtFor is how long an engine is given credit for finishing a create that it did not answer.
const doubtFor = 3 * time.Minute

// doubts remembers the instances whose create had no certain end. The engine may still be at one of them, so its id stays
// counted: neither its absence from a list nor the end of another instance frees it.
type doubts struct {
	clock clock.Clock

	mu    sync.Mutex                // guards until
	until map[backend.Ref]time.Time // the end of the doubt
}

// raise begins the doubt about an instance.
func (d *doubts) raise(ref backend.Ref) {
	end := d.clock.Now().Add(doubtFor)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.until == nil {
		d.until = make(map[backend.Ref]time.Time)
	}
	d.until[ref] = end
}

// settle ends the doubt about an instance: it was seen, alive or ended.
func (d *doubts) settle(ref backend.Ref) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.until, ref)
}

// about says whether an instance of id is in doubt, and forgets those that have been for long enough. There are few.
func (d *doubts) about(id string) (found bool) {
	now := d.clock.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for ref, end := range d.until {
		if !now.Before(end) {
			delete(d.until, ref)
			continue
		}
		found = found || ref.ID == id
	}
	return found
}
