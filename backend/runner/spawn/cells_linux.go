package spawn

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
)

const (
	cellsKept   = 512  // from here on an idle sandbox gives up its thread when another one needs one
	cellsAtMost = 4096 // the Go runtime ends a process that has 10,000 threads
	cellsTried  = 16   // sandboxes that are asked for their thread in one start
)

// cells counts the sandboxes that have a thread.
type cells struct {
	kept, atMost int

	mu   sync.Mutex // guards the fields below; taken after the turn of a Confinement
	used map[*Confinement]uint64
	uses uint64
}

func newCells() *cells {
	return &cells{kept: cellsKept, atMost: cellsAtMost, used: map[*Confinement]uint64{}}
}

// take counts the thread that c is about to start. Where many have one, the sandbox that has been idle for longest gives its own up.
func (s *cells) take(c *Confinement) error {
	for _, other := range s.surplus() {
		if other.giveUp() {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.used) >= s.atMost {
		return fmt.Errorf("%w: %d have one, which is the limit", ErrThreads, len(s.used))
	}
	s.useLocked(c)
	return nil
}

// surplus returns the sandboxes to ask for their thread, those first that have not used theirs for longest.
func (s *cells) surplus() []*Confinement {
	s.mu.Lock()
	if len(s.used) < s.kept {
		s.mu.Unlock()
		return nil
	}
	used := maps.Clone(s.used)
	s.mu.Unlock()
	maps.DeleteFunc(used, func(c *Confinement, _ uint64) bool { return c.running() > 0 })
	idle := slices.SortedFunc(maps.Keys(used), func(a, b *Confinement) int { return cmp.Compare(used[a], used[b]) })
	return idle[:min(len(idle), cellsTried)]
}

// use says that c, which has a thread, has just used it.
func (s *cells) use(c *Confinement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.useLocked(c)
}

func (s *cells) useLocked(c *Confinement) {
	s.uses++
	s.used[c] = s.uses
}

func (s *cells) drop(c *Confinement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.used, c)
}

// giveUp ends the thread of a sandbox in which nothing is left; false if it is in use. It does not wait for its turn: whoever calls has
// the turn of another sandbox.
func (c *Confinement) giveUp() bool {
	if !c.turn.TryLock() {
		return false
	}
	defer c.turn.Unlock()
	return c.retireLocked()
}
