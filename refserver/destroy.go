package refserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// claims bounds how often claim looks again at an id that changes hands under its eyes.
const claims = 10

// deleteSandbox destroys a sandbox, running or stopped, and its workspace.
func (s *Server) deleteSandbox(w http.ResponseWriter, r *http.Request, c *call) error {
	ifIdle, err := flag(r, "if_idle")
	if err != nil {
		return err
	}
	out, err := s.destroy(r.Context(), c.id, ifIdle)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, map[string]any{"id": c.id, "deleted": true, "outcome": out})
	return nil
}

// postStop stops a sandbox and keeps its workspace.
func (s *Server) postStop(w http.ResponseWriter, r *http.Request, c *call) error {
	got, err := s.join(r.Context(), stopKey(c.id), func(ctx context.Context) (ended, error) {
		out, err := s.stop(ctx, c.id)
		return ended{outcome: out.String()}, err
	})
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, map[string]any{"id": c.id, "outcome": got.outcome})
	return nil
}

// destroy joins the teardown of id that is under way, or begins one. Who joined one that was for an idle sandbox only, and
// found it busy, asks again without that condition.
func (s *Server) destroy(ctx context.Context, id string, ifIdle bool) (string, error) {
	for {
		got, err := s.join(ctx, teardownKey(id), func(ctx context.Context) (ended, error) {
			out, err := s.teardown(ctx, id, ifIdle)
			return ended{outcome: out.String(), ifIdle: ifIdle}, err
		})
		if f, ok := errors.AsType[*failure](err); ok && f.code == wire.CodeBusy && got.ifIdle && !ifIdle {
			continue
		}
		return got.outcome, err
	}
}

func teardownKey(id string) string { return "destroy " + id }
func stopKey(id string) string     { return "stop " + id }

// teardown takes id out of sight, destroys the instance it took, and puts it back unless that is confirmed.
func (s *Server) teardown(ctx context.Context, id string, ifIdle bool) (backend.Outcome, error) {
	h, b, err := s.claim(ctx, id)
	if err != nil {
		return backend.Unknown, err
	}
	defer h.Cancel()
	if ifIdle {
		if err := s.mustBeIdle(ctx, b); err != nil {
			return backend.Unknown, err
		}
	}
	h.Commit()
	tok, _ := s.led.Get(id) // a stopped one is not counted: its zero token does nothing
	tok.Stopping()
	defer tok.Cancel()
	out, err := s.end(ctx, b)
	if out == backend.Unknown {
		return out, unknownOutcome(id, wire.CodeDestroyFailed, err)
	}
	s.uncount(tok, b.Ref)           // before the hold ends, or a create of id would meet a count of nothing
	s.joins.Forget(teardownKey(id)) // nor may a destroy of what is created next join this one
	h.Release()
	s.forget(ctx, b)
	return out, nil
}

// end destroys b, which is listed as that meanwhile.
func (s *Server) end(ctx context.Context, b *box) (backend.Outcome, error) {
	defer s.moving.show(b.Sandbox, stateDestroying)()
	return s.be.Destroy(ctx, b.Ref)
}

// stop stops id; one that is stopped already is Gone.
func (s *Server) stop(ctx context.Context, id string) (backend.Outcome, error) {
	h, b, err := s.claim(ctx, id)
	if err != nil {
		return backend.Unknown, err
	}
	defer h.Cancel()
	if !b.Running {
		return backend.Gone, nil
	}
	return s.halt(ctx, h, b)
}

// halt stops the sandbox that h took. The hold is not committed: look-ups wait and then say what it came to, since a sandbox
// that is being stopped is neither running nor absent.
func (s *Server) halt(ctx context.Context, h *hold, b *box) (backend.Outcome, error) {
	tok, _ := s.led.Get(b.ID)
	tok.Stopping()
	defer tok.Cancel()
	defer s.moving.show(b.Sandbox, stateStopping)()
	out, err := s.be.Stop(ctx, b.Ref)
	if out == backend.Unknown {
		return out, unknownOutcome(b.ID, wire.CodeStopFailed, err)
	}
	s.uncount(tok, b.Ref)
	s.joins.Forget(stopKey(b.ID))
	h.Release()
	return out, nil
}

// claim takes id for a teardown, whether it is registered, stopped or silent.
func (s *Server) claim(ctx context.Context, id string) (*hold, *box, error) {
	var last error
	for range claims {
		_, err := s.reg.Resolve(ctx, id)
		b, apart := unregistered(err)
		if err != nil && !apart {
			return nil, nil, err
		}
		var h *hold
		if apart {
			h, err = s.reg.Hold(id)
		} else {
			h, err = s.reg.Take(id)
		}
		switch {
		case err == nil && apart:
			return h, b, nil
		case err == nil:
			return h, h.Entry().Value, nil
		}
		last = err // it was resumed, stopped or taken in between: look again
	}
	return nil, nil, last
}

// mustBeIdle returns a failure unless b is known to be idle: nothing runs in it, and no request, here or on another replica,
// is using it.
func (s *Server) mustBeIdle(ctx context.Context, b *box) error {
	if !b.Running {
		return nil
	}
	why, cause := s.whyBusy(ctx, b)
	if why == "" {
		return nil
	}
	return &failure{status: http.StatusConflict, code: wire.CodeBusy, text: "sandbox " + strconv.Quote(b.ID) + " is not idle: " + why, cause: cause}
}

// whyBusy returns why b, which runs, is not known to be idle, or "", and what kept it from being known.
func (s *Server) whyBusy(ctx context.Context, b *box) (why string, cause error) {
	if n := b.pins.Load(); n > 0 {
		return fmt.Sprintf("%d requests are using it", n), nil
	}
	act, err := s.runners.activity(ctx, b.Sandbox)
	switch {
	case err != nil:
		return "its runner could not be asked", err
	case act.Running > 0 || act.Pins > 0:
		return fmt.Sprintf("%d processes run in it and %d requests are using it", act.Running, act.Pins), nil
	}
	return "", nil
}

func unknownOutcome(id, code string, cause error) *failure {
	f := &failure{
		status: http.StatusBadGateway, code: code, cause: cause,
		text: "it is not known what became of sandbox " + strconv.Quote(id) + "; it is kept as it was, try again",
		more: map[string]any{"id": id, "outcome": backend.Unknown.String()},
	}
	if code == wire.CodeDestroyFailed {
		f.more["deleted"] = false
	}
	return f
}
