package refserver

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/keepwell-go/keepwell/registry"
)

// listSandboxes answers from the registry, or with fresh=1 from what the backend says now. Only the backend knows stopped ones, and
// only this server which ones it is creating or destroying: those are listed when they are asked for.
func (s *Server) listSandboxes(w http.ResponseWriter, r *http.Request, _ *call) error {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return badRequest("query: %v", err)
	}
	state := q.Get("state")
	switch state {
	case "", stateCreating, stateRunning, stateStopped, stateDestroying:
	default:
		return badRequest("state is %q, it can be creating, running, stopped or destroying", state)
	}
	fresh, err := flag(r, "fresh")
	if err != nil {
		return err
	}
	if err := s.countAll(r.Context()); err != nil { // a server that has not heard from its backend does not know that there are none
		return err
	}
	boxes, err := s.boxes(r, state, fresh)
	if err != nil {
		return err
	}
	shown := make([]sandboxJSON, 0, len(boxes))
	for _, b := range boxes {
		if j := s.sandboxJSON(b); (q.Get("tenant") == "" || q.Get("tenant") == j.Tenant) && (state == "" || state == j.State) {
			shown = append(shown, j)
		}
	}
	slices.SortFunc(shown, func(a, b sandboxJSON) int { return cmp.Compare(a.ID, b.ID) })
	answer(w, http.StatusOK, map[string]any{"sandboxes": shown})
	return nil
}

// boxes returns the sandboxes that state may be true of.
func (s *Server) boxes(r *http.Request, state string, fresh bool) ([]*box, error) {
	if (fresh || state == stateStopped) && s.latch.draining() { // when a Sync makes no list, since it would adopt
		snap, err := s.list(r.Context(), nil)
		if err != nil {
			return nil, errors.Join(registry.ErrUnavailable, err)
		}
		if state == stateStopped {
			return slices.Collect(maps.Values(snap.Items)), nil
		}
	} else if fresh || state == stateStopped {
		rep, err := s.reg.Sync(r.Context())
		if _, capped := errors.AsType[*registry.CapError](err); err != nil && !capped {
			return nil, err
		}
		if state == stateStopped {
			return slices.Collect(maps.Values(rep.Items)), nil
		}
	}
	if state == stateCreating || state == stateDestroying {
		return s.moving.all(), nil
	}
	var boxes []*box
	for e := range s.reg.All() {
		boxes = append(boxes, e.Value)
	}
	return boxes, nil
}

// flag returns the boolean query parameter name, false where it is absent. What cannot be understood is refused, since to take
// it for false could destroy what was to be spared.
func flag(r *http.Request, name string) (bool, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	switch {
	case err != nil:
		return false, badRequest("query: %v", err)
	case !q.Has(name):
		return false, nil
	}
	b, err := strconv.ParseBool(q.Get(name))
	if err != nil {
		return false, badRequest("%s is %q, it can be 1 or 0", name, q.Get(name))
	}
	return b, nil
}
