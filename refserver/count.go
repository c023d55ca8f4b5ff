package refserver

import (
	"context"
	"time"

	"github.com/keepwell-go/keepwell/registry/fresh"
)

// countPause is the time between a first list that has failed and the next attempt at one: whoever comes meanwhile waits for that.
const countPause = time.Second

// countAll returns once the quota counts what there was before this Server. Until the first list it counts none of that, and would
// admit as many again. All who wait share one attempt; one that has begun before they came will do, since what is younger than the
// Server is counted by whoever creates it.
func (s *Server) countAll(ctx context.Context) error {
	if s.counted.Load() {
		return nil
	}
	_, err := s.join(ctx, "count", func(ctx context.Context) (ended, error) { return ended{}, s.tryCount(ctx) })
	return err
}

// tryCount makes one attempt, which joins no other.
func (s *Server) tryCount(ctx context.Context) error {
	if err := s.pause(countPause - s.cfg.Clock.Since(s.uncounted)); err != nil {
		return err
	}
	if s.counted.Load() {
		return nil
	}
	err := s.reconcile(ctx)
	if s.counted.Load() { // also where so much was absent that nothing was dropped
		return nil
	}
	if err != nil {
		s.uncounted = s.cfg.Clock.Now()
	}
	return err
}

// pause lets d pass, unless the Server is closed.
func (s *Server) pause(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := s.cfg.Clock.Timer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-s.tasks.closing():
		return unavailable(fresh.ErrClosed)
	}
}
