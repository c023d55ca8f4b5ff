package refserver

import (
	"sync"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/registry"
)

// silents remembers the instances that run and could not be registered since their runners did not answer, until one of them is
// registered after all, or ends.
type silents struct {
	mu   sync.Mutex // guards refs
	refs map[backend.Ref]struct{}
}

func (s *silents) add(ref backend.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refs == nil {
		s.refs = make(map[backend.Ref]struct{})
	}
	s.refs[ref] = struct{}{}
}

func (s *silents) drop(ref backend.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.refs, ref)
}

func (s *silents) has(ref backend.Ref) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.refs[ref]
	return ok
}

// keep drops all but those of ids that are listed.
func (s *silents) keep(listed map[string]*box) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ref := range s.refs {
		if b, ok := listed[ref.ID]; !ok || b.Instance != ref.Instance {
			delete(s.refs, ref)
		}
	}
}

// countSilent counts what a list shows running and silent. A later one frees it, or registers it. It looks while nobody else has the
// id: who has ended the instance since the list has dropped it here.
func (s *Server) countSilent(rep registry.Report[string, *box]) {
	for id, b := range rep.Items {
		if !b.Running || !s.silents.has(b.Ref) {
			continue
		}
		h, err := s.reg.Hold(id)
		if err != nil {
			continue // registered, or in other hands
		}
		if _, counted := s.led.Get(id); !counted && s.silents.has(b.Ref) {
			s.led.Adopt(id, claimOf(b.Spec))
		}
		h.Cancel()
	}
	if rep.Complete {
		s.silents.keep(rep.Items)
	}
}
