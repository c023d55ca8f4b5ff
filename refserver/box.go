package refserver

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/quota"
	"github.com/keepwell-go/keepwell/registry"
)

// box is one incarnation of a sandbox as this server knows it. It is not changed once it is registered, but for pins.
type box struct {
	backend.Sandbox
	state    string       // creating or destroying; "": running or not, as Running says
	protocol int          // of its runner; 0: that was not asked
	pins     atomic.Int64 // requests under way
}

// claim is what one sandbox counts in the quota.
type claim struct{ tenant string }

type (
	entry  = registry.Entry[string, *box]
	hold   = registry.Hold[string, *box]
	ledger = quota.Ledger[string, claim]
	token  = quota.Token[string, claim]
)

// stoppedError declines to adopt a sandbox that is not running, and carries it to those who stop, destroy or ask for it.
type stoppedError struct{ box *box }

func (e *stoppedError) Error() string { return "sandbox " + e.box.ID + " is stopped" }
func (e *stoppedError) Unwrap() error { return registry.ErrNotAdoptable }

// silentError is why a sandbox that runs could not be registered. Those who stop or destroy it need no runner, so it carries it to them.
type silentError struct {
	box   *box
	cause error
}

func (e *silentError) Error() string {
	return "sandbox " + e.box.ID + " runs and is silent: " + e.cause.Error()
}
func (e *silentError) Unwrap() error { return e.cause }

// unregistered returns the sandbox that there is although it could not be registered, for which err is the reason.
func unregistered(err error) (*box, bool) {
	if e, ok := errors.AsType[*stoppedError](err); ok {
		return e.box, true
	}
	if e, ok := errors.AsType[*silentError](err); ok {
		return e.box, true
	}
	return nil, false
}

func claimOf(s backend.Spec) claim { return claim{tenant: s.Tenant} }

// expires returns when the lifetime of b ends, or false when it never does.
func (b *box) expires() (time.Time, bool) {
	if b.TTL <= 0 || b.Pinned {
		return time.Time{}, false
	}
	return b.renewed().Add(b.TTL), true
}

// renewed returns when the lifetime of b began.
func (b *box) renewed() time.Time {
	if b.Renewed.IsZero() {
		return b.Created
	}
	return b.Renewed
}

// list asks the backend for the registry. What was registered before it asked, and is listed as stopped, as another instance or
// elsewhere, is dropped at once: that is the backend's word on it, not an absence.
func (s *Server) list(ctx context.Context, ids []string) (registry.Snapshot[string, *box], error) {
	before := s.registered(ids)
	got, err := s.be.List(ctx, ids...)
	if err != nil {
		return registry.Snapshot[string, *box]{}, err
	}
	snap := registry.Snapshot[string, *box]{Items: make(map[string]*box, len(got.Sandboxes)), Complete: got.Complete}
	for _, sb := range got.Sandboxes {
		snap.Items[sb.ID] = &box{Sandbox: sb}
	}
	for _, e := range before {
		b, ok := snap.Items[e.Key]
		switch {
		case !ok:
		case !b.Running || b.Instance != e.Value.Instance:
			s.reg.Invalidate(e)
		case b.Endpoint != e.Value.Endpoint && s.reg.Invalidate(e):
			s.moved.Store(true)
		}
	}
	return snap, nil
}

// registered returns the entries of ids, or all.
func (s *Server) registered(ids []string) []entry {
	if ids == nil {
		return slices.Collect(s.reg.All())
	}
	var found []entry
	for _, id := range ids {
		if e, ok := s.reg.Lookup(id); ok {
			found = append(found, e)
		}
	}
	return found
}

// adopt registers what a list found running, once its runner has answered.
func (s *Server) adopt(ctx context.Context, _ string, b *box) (*box, error) {
	if !b.Running {
		return nil, &stoppedError{b}
	}
	opened, err := s.open(ctx, b.Sandbox)
	if err != nil {
		s.silents.add(b.Ref)
		return nil, &silentError{b, err}
	}
	return opened, nil
}

// observe makes the quota follow what the registry does of its own accord. Who holds an id moves its token itself.
func (s *Server) observe(ev registry.Event[string, *box]) {
	if ev.Local {
		return
	}
	if ev.Present {
		s.led.Adopt(ev.Key, claimOf(ev.Value.Spec))
		s.doubts.settle(ev.Value.Ref)
		s.silents.drop(ev.Value.Ref)
		return
	}
	if tok, ok := s.led.Get(ev.Key); ok {
		s.uncount(tok, ev.Value.Ref)
	}
}

// uncount frees what an instance counted that has ended, unless another one of its id is in doubt.
func (s *Server) uncount(tok token, ref backend.Ref) {
	s.doubts.settle(ref)
	s.silents.drop(ref)
	if s.doubts.about(ref.ID) {
		tok.Live()
		return
	}
	tok.Release()
}

// open returns sb ready for requests: its runner has answered for this very sandbox, in a protocol that is spoken here.
func (s *Server) open(ctx context.Context, sb backend.Sandbox) (*box, error) {
	protocol, err := s.runners.protocol(ctx, sb)
	if err != nil {
		return nil, err
	}
	sb.Env = nil // not carried by lists, and not to be kept longer than the create needs it
	return &box{Sandbox: sb, protocol: protocol}, nil
}
