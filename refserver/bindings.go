package refserver

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver/binding"
)

// storeBudget bounds each question to the binding store.
const storeBudget = 5 * time.Second

// maxNotes is how many ends of processes are being kept at once while nobody waits for that.
const maxNotes = 64

// assignedPrefix begins every process id that a server assigns.
const assignedPrefix = "proc_"

// assigned says whether id may be one that a server assigned, and so be bound to another.
func assigned(id string) bool { return strings.HasPrefix(id, assignedPrefix) }

// bindingsOf returns the store of cfg as this installation sees it. Replicas share the key and the backend, and so the rows. Servers of
// another backend are none, though they may well share the state directory: what one of them cannot list would be forgotten.
func bindingsOf(cfg Config) binding.Store {
	store := cfg.Bindings
	if store == nil {
		store = binding.NewMemory()
	}
	mac := hmac.New(sha256.New, cfg.Key)
	mac.Write([]byte("bindings\x00" + cfg.BackendName))
	return binding.Scope(store, hex.EncodeToString(mac.Sum(nil)[:8]))
}

// stored asks the binding store within its budget. A failure concerns only who needs the answer.
func (s *Server) stored(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := s.cfg.Clock.WithTimeout(ctx, storeBudget)
	defer cancel()
	err := ask(ctx)
	if err == nil || errors.Is(err, binding.ErrConflict) {
		return err
	}
	return &failure{
		status: http.StatusServiceUnavailable, code: wire.CodeStoreUnavailable, retry: 1, cause: err,
		text: "the store that tells which process an id means could not be asked",
	}
}

// guestOf returns the id by which the runner of b knows a process; "" if it is bound to none.
func (s *Server) guestOf(ctx context.Context, b *box, id string) (guest string, err error) {
	err = s.stored(ctx, func(ctx context.Context) error {
		guest, err = s.bindings.Bound(ctx, b.Ref, id)
		return err
	})
	return guest, err
}

// bind keeps that public means guest. It does not depend on whether the client that caused it is still there.
func (s *Server) bind(ctx context.Context, b *box, public, guest string) error {
	return s.stored(context.WithoutCancel(ctx), func(ctx context.Context) error {
		return s.bindings.Bind(ctx, b.Ref, public, guest)
	})
}

// noteEnd keeps that a process was seen to have ended, in a task of its own: nothing depends on it, so that nobody waits for a store that
// is slow, until that has many to keep or the Server is closed.
func (s *Server) noteEnd(ctx context.Context, b *box, public string) {
	at := s.cfg.Clock.Now()
	if !s.tasks.begin() {
		s.keepEnd(ctx, b, public, at)
		return
	}
	note := func() error {
		defer s.tasks.wg.Done()
		s.keepEnd(ctx, b, public, at)
		return nil
	}
	if !s.notes.TryGo(note) {
		_ = note()
	}
}

// keepEnd keeps when a process was seen to have ended, so that retention need not wait for it to expire.
func (s *Server) keepEnd(ctx context.Context, b *box, public string, at time.Time) {
	err := s.stored(context.WithoutCancel(ctx), func(ctx context.Context) error {
		return s.bindings.End(ctx, b.Ref, public, at)
	})
	if err != nil {
		s.log.Warn("the end of a process was not kept", zap.String("sandbox", b.ID), zap.String("process", public), zap.Error(err))
	}
}

// forget removes the bindings of a sandbox that was destroyed. What it leaves is found by retention.
func (s *Server) forget(ctx context.Context, b *box) {
	if b.protocol >= wire.Protocol {
		return // it has none
	}
	err := s.stored(ctx, func(ctx context.Context) error { return s.bindings.Forget(ctx, b.Ref) })
	if err != nil {
		s.log.Warn("bindings of a destroyed sandbox are left to retention", zap.String("sandbox", b.ID), zap.Error(err))
	}
}

// retain removes the rows that nothing needs any more: of processes that ended or expired a while ago, and of incarnations that the
// backend has no longer.
func (s *Server) retain(ctx context.Context) error {
	now := s.cfg.Clock.Now()
	pruneErr := s.stored(ctx, func(ctx context.Context) error {
		n, err := s.bindings.Prune(ctx, now.Add(-binding.Retention))
		if n > 0 {
			s.log.Info("pruned starts of processes", zap.Int("starts", n))
		}
		return err
	})
	return errors.Join(pruneErr, s.forgetAbsent(ctx, now))
}

// forgetAbsent forgets incarnations of which a complete list knows nothing. Those with a recent start are left alone: they may be
// newer than the list, by the clock of another replica.
func (s *Server) forgetAbsent(ctx context.Context, now time.Time) error {
	var refs map[backend.Ref]time.Time
	err := s.stored(ctx, func(ctx context.Context) (err error) {
		refs, err = s.bindings.Refs(ctx)
		return err
	})
	if err != nil || len(refs) == 0 {
		return err
	}
	snap, err := s.list(ctx, nil)
	if err != nil || !snap.Complete {
		return err
	}
	for ref, latest := range refs {
		if b, ok := snap.Items[ref.ID]; ok && b.Instance == ref.Instance || latest.After(now.Add(-binding.Retention)) {
			continue
		}
		if err := s.stored(ctx, func(ctx context.Context) error { return s.bindings.Forget(ctx, ref) }); err != nil {
			return err
		}
	}
	return nil
}
