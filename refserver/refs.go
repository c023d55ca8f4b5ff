package refserver

import (
	"sync"

	"github.com/keepwell-go/keepwell/backend"
)

// refs is a set of instances. The zero value is empty and ready for use, by several at once.
type refs struct {
	mu  sync.Mutex // guards all
	all map[backend.Ref]struct{}
}

func (r *refs) add(ref backend.Ref) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = make(map[backend.Ref]struct{})
	}
	r.all[ref] = struct{}{}
}

func (r *refs) drop(ref backend.Ref) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, ref)
}

func (r *refs) has(ref backend.Ref) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.all[ref]
	return ok
}

// keep drops all but those that are listed as running.
func (r *refs) keep(listed map[string]*box) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ref := range r.all {
		if b, ok := listed[ref.ID]; !ok || b.Instance != ref.Instance || !b.Running {
			delete(r.all, ref)
		}
	}
}
