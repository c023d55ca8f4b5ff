package refserver

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/quota"
	"github.com/keepwell-go/keepwell/registry"
	"github.com/keepwell-go/keepwell/sweep"
)

// judges is how many runners a pass asks at once, so that a few silent ones do not use up its time.
const judges = 8

// pass makes registry and quota agree with the backend, then stops what is idle or expired.
func (s *Server) pass(ctx context.Context) error {
	if s.latch.takeLinger(s.cfg.MaxLinger) {
		s.stopLingering(ctx)
	}
	capped := s.reconcile(ctx)
	if _, ok := errors.AsType[*registry.CapError](capped); capped != nil && !ok {
		return capped // nothing was dropped or freed, and what could not be listed is not judged
	}
	rep, err := sweep.Plan[entry]{
		Subjects: s.reg.All(),
		Judge: func(ctx context.Context, e entry) (sweep.Verdict, string) {
			return sweep.Judge(s.facts(ctx, e.Value))
		},
		Act:    s.reap,
		Since:  func(e entry) time.Time { return e.Value.renewed() },
		Judges: judges,
		Logger: s.log,
	}.Run(ctx)
	for _, f := range rep.Verdicts {
		if f.Acted {
			s.log.Info("swept", zap.String("sandbox", f.Subject.Key), zap.Stringer("verdict", f.Verdict), zap.String("reason", f.Reason))
		}
	}
	return errors.Join(capped, err)
}

// reconcile adopts what the backend has, drops what it lacks, and frees the quota of what no list, registry, hold or doubt
// knows. A *registry.CapError says that so much is absent that none of it was dropped; the rest was done.
func (s *Server) reconcile(ctx context.Context) error {
	mark := s.led.Mark() // before the list begins
	rep, err := s.reg.Sync(ctx)
	if s.moved.Swap(false) && err == nil {
		rep, err = s.reg.Sync(ctx)
	}
	s.countSilent(rep)
	if _, capped := errors.AsType[*registry.CapError](err); (err == nil || capped) && !s.latch.draining() { // else there was no list
		s.counted.Store(true)
	}
	if !rep.Complete {
		return err
	}
	s.led.Reconcile(quota.Snapshot[string]{
		Since: mark, Complete: rep.Complete, Has: func(id string) bool { return rep.Has(id) || s.doubts.about(id) },
	})
	for _, b := range rep.Items {
		if !b.Running {
			s.uncountStopped(b.Ref)
		}
	}
	return err
}

// uncountStopped frees what a stopped sandbox still counts since a resume of it had no certain end. Whoever holds the id owns
// that count.
func (s *Server) uncountStopped(ref backend.Ref) {
	if _, counted := s.led.Get(ref.ID); !counted || s.doubts.about(ref.ID) {
		return
	}
	h, err := s.reg.Hold(ref.ID)
	if err != nil {
		return // registered, or in other hands
	}
	defer h.Cancel()
	if tok, ok := s.led.Get(ref.ID); ok {
		s.uncount(tok, ref)
	}
}

// reap takes the sandbox, looks at it again, and acts if the verdict still stands.
func (s *Server) reap(ctx context.Context, e entry, v sweep.Verdict) (bool, error) {
	h, err := s.reg.Take(e.Key)
	if err != nil {
		return false, nil // gone, or in other hands
	}
	defer h.Cancel()
	if h.Entry().Version != e.Version {
		return false, nil // another incarnation, which nobody has judged
	}
	b := h.Entry().Value
	if again, _ := sweep.Judge(s.facts(ctx, b)); again != v {
		return false, nil
	}
	if v == sweep.Drop {
		if tok, ok := s.led.Get(e.Key); ok {
			s.uncount(tok, b.Ref)
		}
		return h.Release(), nil
	}
	out, err := s.halt(ctx, h, b)
	return out != backend.Unknown, err
}

// facts asks the runner, and where that does not answer the backend, about b.
func (s *Server) facts(ctx context.Context, b *box) sweep.Facts {
	f := sweep.Facts{
		Pinned: b.Pinned, Busy: b.pins.Load() > 0, IdleTimeout: b.Idle, TTL: b.TTL, Age: s.cfg.Clock.Now().Sub(b.renewed()),
	}
	if f.Pinned || f.Busy {
		return f // nothing else could matter
	}
	act, err := s.runners.activity(ctx, b.Sandbox)
	if err != nil {
		f.Gone = s.gone(ctx, b)
		return f
	}
	f.Reachable, f.Busy, f.Idle = true, act.Running > 0 || act.Pins > 0, time.Duration(act.IdleMS)*time.Millisecond
	return f
}

// gone says whether the backend knows that this instance does not run. It is false when the backend could not tell.
func (s *Server) gone(ctx context.Context, b *box) bool {
	got, err := s.be.List(ctx, b.ID)
	if err != nil {
		return false
	}
	for _, sb := range got.Sandboxes {
		if sb.ID == b.ID {
			return sb.Instance != b.Instance || !sb.Running
		}
	}
	return true // asked for by name and not there
}
