package refserver

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend"
)

// heedEvery is the least time between two lists that a backend's hints cause.
const heedEvery = time.Second

// heed asks the backend what it has whenever that hints at a change, until ctx ends. It saves the wait for the next sweep and nothing
// else: no request is answered by a hint, and nothing is judged idle on one.
func (s *Server) heed(ctx context.Context) {
	w, ok := s.cfg.Backend.(backend.Watcher)
	if !ok {
		return
	}
	hints := make(chan struct{}, 1) // full: a list is to begin
	var watching sync.WaitGroup
	watching.Go(func() { // ends with ctx
		w.Watch(ctx, func() {
			select {
			case hints <- struct{}{}:
			default:
			}
		})
	})
	defer watching.Wait()
	pause := s.cfg.Clock.Timer(0)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		select {
		case <-hints:
		case <-ctx.Done():
			return
		}
		if err := s.reconcile(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("a change that the backend hinted at was not looked at", zap.Error(err))
		}
		pause.Reset(heedEvery)
	}
}
