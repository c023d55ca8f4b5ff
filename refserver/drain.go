package refserver

import (
	"context"
	"iter"
	"net/http"
	"slices"
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

// getDrain asks the runners, and the backend nothing, so that it can be asked again and again. It goes by the quota, which counts a
// sandbox from before its create to after its confirmed end: the registry does not show those on their way.
func (s *Server) getDrain(w http.ResponseWriter, r *http.Request, _ *call) error {
	since, draining := s.latch.began()
	shown := drainJSON{drainedJSON: drainedJSON{Draining: draining}, SandboxIDs: []string{}}
	if draining {
		shown.SinceMS = since.UnixMilli()
	}
	for h := range s.led.Holders() {
		shown.SandboxIDs = append(shown.SandboxIDs, h.Key)
	}
	slices.Sort(shown.SandboxIDs)
	shown.Sandboxes = len(shown.SandboxIDs)
	shown.Busy = s.busyOf(r.Context(), shown.SandboxIDs)
	answer(w, http.StatusOK, shown)
	return nil
}

// busyOf returns those of ids that are not known to be idle, in their order.
func (s *Server) busyOf(ctx context.Context, ids []string) []busyJSON {
	ctx, cancel := s.cfg.Clock.WithTimeout(ctx, askBudget) // for all of them: there may be many, and one cause for their silence
	defer cancel()
	reasons := make([]string, len(ids))
	atOnce(slices.All(ids), func(i int, id string) {
		if e, ok := s.reg.Lookup(id); ok {
			reasons[i], _ = s.whyBusy(ctx, e.Value)
		} else {
			reasons[i] = s.whyAway(id)
		}
	})
	busy := []busyJSON{}
	for i, id := range ids {
		if reasons[i] != "" {
			busy = append(busy, busyJSON{id, reasons[i]})
		}
	}
	return busy
}

// whyAway says why a sandbox that is counted is not registered.
func (s *Server) whyAway(id string) string {
	if state := s.moving.state(id); state != "" {
		return "it is on its way in or out: " + state
	}
	return "it is not known what it is doing"
}

// stopLingering stops what this Server created itself and still serves, busy and pinned ones too. Another server may have adopted the
// rest, or this one only adopted it: that is not its to end.
func (s *Server) stopLingering(ctx context.Context) {
	entries := slices.Collect(s.reg.All()) // not while others wait to change them
	atOnce(slices.All(entries), func(_ int, e entry) {
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

// atOnce calls do for each, a few at a time, and waits for all.
func atOnce[T any](all iter.Seq2[int, T], do func(int, T)) {
	var g errgroup.Group
	g.SetLimit(judges)
	for i, v := range all {
		g.Go(func() error { do(i, v); return nil })
	}
	_ = g.Wait()
}
