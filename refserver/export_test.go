package refserver

import (
	"context"
	"net"
	"strings"

	"github.com/keepwell-go/keepwell/refserver/binding"
	"github.com/keepwell-go/keepwell/registry"
)

// Dial makes s reach runners through dial, such as a network that exists in memory only.
func (s *Server) Dial(dial func(ctx context.Context, network, addr string) (net.Conn, error)) {
	s.runners.transport.DialContext = dial
}

// Sweep runs one pass now.
func (s *Server) Sweep(ctx context.Context) error { return s.loop.TryRun(ctx) }

// Registry returns the counters of the registry.
func (s *Server) Registry() registry.Stats { return s.reg.Stats() }

// Registered returns the registered ids with their instances.
func (s *Server) Registered() map[string]string {
	ids := map[string]string{}
	for e := range s.reg.All() {
		ids[e.Key] = e.Value.Instance
	}
	return ids
}

// Counted returns the ids that the quota counts.
func (s *Server) Counted() map[string]bool {
	ids := map[string]bool{}
	for h := range s.led.Holders() {
		ids[h.Key] = true
	}
	return ids
}

// Used returns the use of a limit under a key.
func (s *Server) Used(limit, key string) int64 { return s.led.Stats().Used[limit][key] }

// Route is one line of the API: its path with id and process in place, and whose token opens it.
type Route struct {
	Method, Path         string
	ForSandbox, ForAdmin bool
}

// Routes returns all of the API for one sandbox and one process.
func (s *Server) Routes(id, process string) (all []Route) {
	names := strings.NewReplacer("{id}", id, "{process}", process)
	for _, rt := range s.routes {
		all = append(all, Route{rt.method, names.Replace(rt.path), rt.access == forSandbox, rt.access == forAdmin})
	}
	return all
}

// TokenState returns the state of what id counts, in words.
func (s *Server) TokenState(id string) string {
	tok, ok := s.led.Get(id)
	if !ok {
		return "not counted"
	}
	state, _ := tok.State()
	return state.String()
}

// Pinning looks id up, and returns what a request does next with what it found.
func (s *Server) Pinning(id string) (pin func() (end func(), ok bool)) {
	e, _ := s.reg.Lookup(id)
	return func() (func(), bool) { return s.pin(e) }
}

// Pins returns how many requests of the sandbox that is registered for id are under way.
func (s *Server) Pins(id string) int64 {
	e, _ := s.reg.Lookup(id)
	return e.Value.pins.Load()
}

// Silent returns how many instances are remembered as silent.
func (s *Server) Silent() int { return len(s.silents.all) }

// Bindings returns the store as s sees it.
func (s *Server) Bindings() binding.Store { return s.bindings }

// Retain removes old rows now.
func (s *Server) Retain(ctx context.Context) error { return s.rows.TryRun(ctx) }

// LastNewline finds the last newline of b, or -1.
var LastNewline = lastNewline
