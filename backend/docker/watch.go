package docker

import (
	"context"
	"time"

	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"
	"go.uber.org/zap"
)

const (
	firstReopen = time.Second // after a stream of events has ended
	lastReopen  = time.Minute
)

// Watch implements [backend.Watcher] with the engine's stream of events. A stream that ends is opened again, soon if it was of use.
func (b *Backend) Watch(ctx context.Context, changed func()) {
	wait := firstReopen
	for {
		start := b.cfg.Clock.Now()
		err := b.listen(ctx, changed)
		if ctx.Err() != nil {
			return
		}
		if b.cfg.Clock.Since(start) > wait {
			wait = firstReopen
		}
		b.cfg.Logger.Info("engine's events are not heard", zap.Error(err), zap.Duration("again_in", wait))
		if b.sleep(ctx, wait) != nil {
			return
		}
		wait = min(2*wait, lastReopen)
	}
}

// listen reads one stream to its end.
func (b *Backend) listen(ctx context.Context, changed func()) error {
	if err := b.Ping(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	f := b.filter("").Add("label", labelKind+"="+kindSandbox).Add("type", string(events.ContainerEventType))
	f.Add("event", string(events.ActionStart), string(events.ActionDie), string(events.ActionDestroy))
	stream := b.api.Events(ctx, client.EventsListOptions{Filters: f})
	changed() // for what was while nobody listened
	for {
		select {
		case <-stream.Messages:
			changed()
		case err := <-stream.Err:
			return err
		}
	}
}
