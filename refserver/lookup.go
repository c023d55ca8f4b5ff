package refserver

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/registry"
)

// getSandbox answers what the backend says now, also of a sandbox that is registered.
func (s *Server) getSandbox(w http.ResponseWriter, r *http.Request, c *call) error {
	e, err := s.refresh(r.Context(), c.id)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, s.sandboxJSON(e.Value))
	return nil
}

// refresh returns what the backend says of id now. When that drops an entry it asks once more, since a replacement, or the
// stopped remains, can be told only when the entry has gone.
func (s *Server) refresh(ctx context.Context, id string) (entry, error) {
	_, known := s.reg.Lookup(id)
	e, err := s.reg.Refresh(ctx, id)
	if known && errors.Is(err, registry.ErrNotFound) && !errors.Is(err, registry.ErrNotAdoptable) {
		return s.reg.Resolve(ctx, id)
	}
	return e, err
}

// use pins the sandbox of c for one request, until end is called.
func (s *Server) use(ctx context.Context, c *call) (e entry, end func(), err error) {
	for {
		e, ok := s.reg.Lookup(c.id)
		if !ok {
			if e, err = s.reg.Resolve(ctx, c.id); err != nil {
				return e, nil, err
			}
		}
		if c.instance != "" && c.instance != e.Value.Instance {
			return e, nil, unauthorized() // the token of an earlier incarnation
		}
		if end, ok := s.pin(e); ok {
			return e, end, nil
		}
	}
}

// pin keeps e from being taken for idle until end is called; false if it has been taken. After the pin it looks again: whoever takes
// the sandbox later sees the pin, and whoever took it earlier is seen here.
func (s *Server) pin(e entry) (end func(), ok bool) {
	pins := &e.Value.pins
	pins.Add(1)
	if now, ok := s.reg.Lookup(e.Key); ok && now.Version == e.Version {
		return func() { pins.Add(-1) }, true
	}
	pins.Add(-1)
	return nil, false
}

// lost says what a runner that does not answer means: nothing but the backend tells whether the sandbox is gone, and then the
// registry drops it. What holds for it by then may as well be something else, such as that it is created anew.
func (s *Server) lost(ctx context.Context, e entry, cause error) error {
	if _, err := s.refresh(ctx, e.Key); err != nil {
		f := s.failureOf(e.Key, err)
		f.cause = errors.Join(cause, err)
		return f
	}
	return &failure{
		status: http.StatusServiceUnavailable, code: wire.CodeRunnerLost, retry: 1, cause: cause,
		text: "sandbox " + strconv.Quote(e.Key) + " exists, but its runner does not answer",
	}
}
