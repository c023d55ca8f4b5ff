package refserver

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/bodylimit"
	"github.com/keepwell-go/keepwell/quota"
	"github.com/keepwell-go/keepwell/registry"
	"github.com/keepwell-go/keepwell/registry/fresh"
)

// defaultTenant is whom a sandbox counts against when its create names nobody.
const defaultTenant = "default"

// postSandbox creates a sandbox. The caller's leaving does not stop it.
func (s *Server) postSandbox(w http.ResponseWriter, r *http.Request, c *call) error {
	req, err := bodylimit.DecodeJSON[createJSON](s.json, w, r)
	if err != nil {
		return unread(err)
	}
	spec, err := s.specOf(req)
	if err != nil {
		return err
	}
	c.id = spec.ID
	if !s.tasks.begin() {
		return unavailable(fresh.ErrClosed)
	}
	defer s.tasks.wg.Done()
	b, err := s.create(context.WithoutCancel(r.Context()), spec)
	if err != nil {
		return err
	}
	shown := s.sandboxJSON(b)
	shown.Token = s.auth.sandboxToken(b.Ref)
	shown.Resumed = &b.Resumed
	answer(w, http.StatusCreated, shown)
	return nil
}

// specOf returns what req asks for, with the server's ceilings, as any backend takes it.
func (s *Server) specOf(req createJSON) (backend.Spec, error) {
	if req.TTLMS < 0 || req.IdleTimeoutMS < 0 {
		return backend.Spec{}, badRequest("ttl_ms is %d and idle_timeout_ms is %d, at least 0 is needed", req.TTLMS, req.IdleTimeoutMS)
	}
	if req.Image != "" && s.cfg.NoImages {
		return backend.Spec{}, badRequest("image is %.512q, but sandboxes of the backend %q have no image: leave it out", req.Image, s.cfg.BackendName)
	}
	spec := backend.Spec{
		Ref:     backend.Ref{ID: req.ID, Instance: newInstance()},
		Tenant:  or(req.Tenant, defaultTenant),
		Image:   req.Image,
		Profile: or(req.Profile, backend.ProfileDefault),
		Env:     req.Env,
		TTL:     clampMS(req.TTLMS, s.cfg.TTLMax),
		Idle:    clampMS(req.IdleTimeoutMS, s.cfg.IdleMax),
		Pinned:  req.Pinned,
	}
	if req.ID == "" {
		spec.ID = newSandboxID()
	}
	if l := req.Limits; l != nil {
		spec.MemoryMB, spec.CPUs, spec.PIDs = l.MemoryMB, l.CPUs, l.PIDs
	}
	return spec, spec.Check()
}

// clampMS returns ms milliseconds, or ceiling where that is less or nothing was asked for.
func clampMS(ms int64, ceiling time.Duration) time.Duration {
	if ms == 0 || ms >= ceiling.Milliseconds() {
		return ceiling
	}
	return time.Duration(ms) * time.Millisecond
}

// create holds the id, then reserves, creates, opens, counts as live and registers; what fails is undone in the opposite order.
// The token lives within the hold, so that what is registered is always counted.
func (s *Server) create(ctx context.Context, spec backend.Spec) (*box, error) {
	if err := s.countAll(ctx); err != nil {
		return nil, err
	}
	if s.latch.draining() { // since this request came in: that the rest is counted is not certain
		return nil, refusesCreates()
	}
	h, err := s.holdNew(ctx, spec.ID)
	if err != nil {
		return nil, err
	}
	defer h.Cancel()
	tok, err := s.reserve(spec)
	if err != nil {
		return nil, err
	}
	defer tok.Cancel() // before h.Cancel
	defer s.moving.show(backend.Sandbox{Spec: spec, Created: s.cfg.Clock.Now()}, stateCreating)()
	sb, err := s.be.Create(ctx, spec)
	if err != nil {
		return nil, s.uncreated(ctx, tok, spec.Ref, err)
	}
	b, err := s.open(ctx, sb)
	if err != nil {
		return nil, s.unopened(ctx, tok, sb, err)
	}
	tok.Live()
	s.created.add(b.Ref)
	h.Fill(b)
	if s.latch.hasLingered() { // and so has stopped the others, maybe before this one was there
		return nil, s.tooLate(ctx, b)
	}
	return b, nil
}

// tooLate undoes a create that has come to its end after all others were ended.
func (s *Server) tooLate(ctx context.Context, b *box) error {
	var err error
	if b.Resumed {
		_, err = s.stop(ctx, b.ID)
	} else {
		_, err = s.teardown(ctx, b.ID, false)
	}
	return cmp.Or(err, error(refusesCreates()))
}

// holdNew takes an absent id, before any quota is looked at. A registered one is looked at again first, since it may have died.
func (s *Server) holdNew(ctx context.Context, id string) (*hold, error) {
	h, err := s.reg.Hold(id)
	if errors.Is(err, registry.ErrExists) {
		if _, gone := s.refresh(ctx, id); errors.Is(gone, registry.ErrNotFound) {
			h, err = s.reg.Hold(id)
		}
	}
	if err == nil {
		return h, nil
	}
	var held *registry.HeldError
	switch {
	case errors.As(err, &held) && held.Destroying:
		return nil, duplicate(id, stateDestroying, err)
	case held != nil && s.stopping(id):
		return nil, duplicate(id, stateRunning, err) // until its stop has come to its end
	case held != nil:
		return nil, duplicate(id, stateCreating, err)
	case errors.Is(err, registry.ErrExists):
		return nil, duplicate(id, stateRunning, err)
	default:
		return nil, err
	}
}

func (s *Server) stopping(id string) bool {
	tok, ok := s.led.Get(id)
	state, _ := tok.State()
	return ok && state == quota.Stopping
}

func duplicate(id, state string, cause error) *failure {
	return &failure{
		status: http.StatusConflict, code: wire.CodeDuplicate, text: "sandbox " + strconv.Quote(id) + " exists already, it is " + state,
		more: map[string]any{"state": state}, cause: cause,
	}
}

// reserve admits an id that the caller holds. One that is counted already had a create without a certain end, or runs and does not
// answer: its token is the holder's now, and goes on counting whatever comes of this create.
func (s *Server) reserve(spec backend.Spec) (token, error) {
	tok, err := s.led.Reserve(spec.ID, claimOf(spec))
	d, isDuplicate := errors.AsType[*quota.DuplicateError](err)
	switch {
	case !isDuplicate:
		return tok, err
	case s.doubts.about(spec.ID), d.State == quota.Live:
		return s.led.Adopt(spec.ID, claimOf(spec)), nil
	default:
		return token{}, duplicate(spec.ID, stateCreating, d)
	}
}

// uncreated undoes a create of which the backend says err. After the errors that mean that it made nothing there is nothing to
// undo; after any other the create may have been a resume, whose workspace is not ours to delete, so it is stopped.
func (s *Server) uncreated(ctx context.Context, tok token, ref backend.Ref, err error) error {
	switch {
	case errors.Is(err, backend.ErrConflict):
		return duplicate(ref.ID, stateRunning, err)
	case errors.Is(err, backend.ErrInvalid), errors.Is(err, backend.ErrQuota), errors.Is(err, backend.ErrUnavailable):
		return err
	}
	out, undoErr := s.be.Stop(ctx, ref)
	if out != backend.Stopped { // gone so far, but the engine may not have finished with it
		s.keepCounted(tok, ref)
	}
	return s.createFailed(ref.ID, out, errors.Join(err, undoErr))
}

// unopened undoes a create whose sandbox runs and cannot be reached: what is fresh is destroyed, what was resumed is stopped.
func (s *Server) unopened(ctx context.Context, tok token, sb backend.Sandbox, err error) error {
	undo := s.be.Destroy
	if sb.Resumed {
		undo = s.be.Stop
	}
	out, undoErr := undo(ctx, sb.Ref)
	if out == backend.Unknown {
		s.keepCounted(tok, sb.Ref)
	}
	return s.createFailed(sb.ID, out, errors.Join(err, undoErr))
}

// keepCounted leaves tok to the lists to come: one of them adopts the sandbox, or in the end frees what it counts.
func (s *Server) keepCounted(tok token, ref backend.Ref) {
	s.doubts.raise(ref)
	tok.Live()
}

func (s *Server) createFailed(id string, undone backend.Outcome, cause error) *failure {
	s.log.Warn("create failed", zap.String("sandbox", id), zap.Stringer("undone", undone), zap.Error(cause))
	f := &failure{status: http.StatusBadGateway, code: wire.CodeCreateFailed, text: "sandbox " + strconv.Quote(id) + " could not be created", cause: cause}
	if spoken, ok := errors.AsType[*protocolError](cause); ok {
		f.text += ": " + spoken.Error()
	}
	if undone == backend.Unknown {
		f.text += ", and it is not known whether something of it is left"
		f.more = map[string]any{"outcome": undone.String()}
	}
	return f
}
