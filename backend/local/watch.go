package local

import (
	"context"
	"errors"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend/runner/spawn"
)

// watchEvery is the time between two looks at the host, and how long it may take to answer one.
const watchEvery = 2 * time.Second

// watch looks at the host until stop is closed. A command that stops whatever starts beside it can hold up the whole host, which
// can then do nothing about it itself.
func (b *Backend) watch(stop <-chan struct{}) {
	ticks := b.cfg.Clock.Ticker(watchEvery)
	defer ticks.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticks.C:
			b.unblock()
		}
	}
}

// unblock frees a host that has its directory and does not answer.
func (b *Backend) unblock() {
	ctx, cancel := b.cfg.Clock.WithTimeout(context.Background(), watchEvery)
	defer cancel()
	if _, err := b.ping(ctx); err == nil || unreached(err) && ctx.Err() == nil {
		return // it answers, or there is none
	}
	host, err := strconv.Atoi(b.holder())
	if err != nil {
		return // none has the directory any more
	}
	killed, err := spawn.KillStuck(host)
	if killed > 0 || err != nil && !errors.Is(err, errors.ErrUnsupported) {
		b.cfg.Logger.Warn("the host runner did not answer; killed what was stopped while it started", zap.Int("host", host), zap.Int("processes", killed), zap.Error(err))
	}
}
