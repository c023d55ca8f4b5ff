package refserver

import "github.com/keepwell-go/keepwell/registry"

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
