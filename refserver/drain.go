package refserver

import (
	"cmp"
	"context"
	"iter"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// drainRetry is when another server can be expected to answer in place of this one, in seconds.
const drainRetry = 5

// Drain makes the Server refuse creates and adopt nothing from now on; what it serves it goes on serving. There is no way back. It
// returns when that began, which a second call does not change.
func (s *Server) Drain() time.Time {
	since := s.latch.begin()
	s.log.Info("no sandbox is created or adopted any more", zap.Time("since", since))
	return since
}

func refusesCreates() *failure {
	return &failure{
		status: http.StatusServiceUnavailable, code: wire.CodeDraining, retry: drainRetry,
		text: "this server is being drained: it creates no sandboxes any more, another one does",
	}
}

func (s *Server) postDrain(w http.ResponseWriter, _ *http.Request, _ *call) error {
	answer(w, http.StatusOK, drainedJSON{true, s.Drain().UnixMilli()})
	return nil
}

type drainedJSON struct {
	Draining bool  `json:"draining"`
	SinceMS  int64 `json:"since_ms,omitempty"`
}

// drainJSON says how far a drain is.
type drainJSON struct {
	drainedJSON
	Sandboxes  int        `json:"sandboxes"`
	SandboxIDs []string   `json:"sandbox_ids"`
	Busy       []busyJSON `json:"busy"`
}

type busyJSON struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

// getDrain asks the runners, and the backend nothing, so that it can be asked again and again.
func (s *Server) getDrain(w http.ResponseWriter, r *http.Request, _ *call) error {
	since, draining := s.latch.began()
	shown := drainJSON{drainedJSON: drainedJSON{Draining: draining}, SandboxIDs: []string{}, Busy: s.busyNow(r.Context())}
	if draining {
		shown.SinceMS = since.UnixMilli()
	}
	for e := range s.reg.All() {
		shown.SandboxIDs = append(shown.SandboxIDs, e.Key)
	}
	slices.Sort(shown.SandboxIDs)
	shown.Sandboxes = len(shown.SandboxIDs)
	answer(w, http.StatusOK, shown)
	return nil
}

// busyNow returns what is not known to be idle, by id.
func (s *Server) busyNow(ctx context.Context) []busyJSON {
	busy := []busyJSON{}
	for _, b := range s.moving.all() {
		busy = append(busy, busyJSON{b.ID, "it is on its way in or out: " + b.state})
	}
	ctx, cancel := s.cfg.Clock.WithTimeout(ctx, askBudget) // for all of them: there may be many, and one cause for their silence
	defer cancel()
	var mu sync.Mutex // guards busy
	s.each(s.reg.All(), func(e entry) {
		if why, _ := s.whyBusy(ctx, e.Value); why != "" {
			mu.Lock()
			defer mu.Unlock()
			busy = append(busy, busyJSON{e.Key, why})
		}
	})
	slices.SortFunc(busy, func(a, b busyJSON) int { return cmp.Compare(a.ID, b.ID) })
	return busy
}

// stopLingering stops what this Server created itself and still serves, busy and pinned ones too. Another server may have adopted the
// rest, or this one only adopted it: that is not its to end.
func (s *Server) stopLingering(ctx context.Context) {
	s.each(s.reg.All(), func(e entry) {
		if s.created.has(e.Value.Ref) {
			s.stopLingerer(ctx, e)
		}
	})
}

func (s *Server) stopLingerer(ctx context.Context, e entry) {
	h, err := s.reg.Take(e.Key)
	if err != nil {
		return // gone, or in other hands
	}
	defer h.Cancel()
	b := h.Entry().Value
	if !s.created.has(b.Ref) {
		return // another incarnation, which somebody else has created meanwhile
	}
	out, err := s.halt(ctx, h, b)
	s.log.Info("stopped after the linger of a drain", zap.String("sandbox", e.Key), zap.Stringer("outcome", out), zap.Error(err))
}

// each calls do for every entry, for a few at once, and waits for all.
func (s *Server) each(entries iter.Seq[entry], do func(entry)) {
	var g errgroup.Group
	g.SetLimit(judges)
	for _, e := range slices.Collect(entries) { // not while others wait to change them
		g.Go(func() error { do(e); return nil })
	}
	_ = g.Wait()
}
