package docker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend"
)

const (
	fetchBudget   = 30 * time.Minute
	fetchPatience = 60 * time.Second // that a create waits for a fetch
	progressEvery = 5 * time.Second
	maxFetches    = 16 // at once, since each goes on when its create has left
)

// fetches are the images being fetched, one fetch for each name, whoever waits for it.
type fetches struct {
	ctx    context.Context // ends with the Backend, and with nobody's request
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	byName map[string]*fetching
	closed bool
}

// fetching is one fetch. err is set before done is closed.
type fetching struct {
	done chan struct{}
	err  error
}

func (f *fetches) open() {
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.byName = map[string]*fetching{}
}

func (f *fetches) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.cancel()
	f.wg.Wait()
}

// fetch gets an image, or joins the fetch that is under way. Neither the caller's leaving nor its patience ends the fetch.
func (b *Backend) fetch(ctx context.Context, name string, get func(context.Context, string) error) error {
	fg, err := b.join(name, get)
	if err != nil {
		return &backend.ImageError{Image: name, Reason: err.Error(), Cause: err}
	}
	patience := b.cfg.Clock.Timer(fetchPatience)
	defer patience.Stop()
	select {
	case <-fg.done:
		return fetched(name, fg.err)
	case <-patience.C:
		return fmt.Errorf("image %q: %w", name, backend.ErrPreparing)
	case <-ctx.Done():
		return fmt.Errorf("image %q: %w: %w", name, backend.ErrPreparing, ctx.Err())
	}
}

func fetched(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errdefs.IsNotFound(err), errdefs.IsUnauthorized(err), errdefs.IsPermissionDenied(err), errdefs.IsInvalidArgument(err), says(err, never) != "":
		return fmt.Errorf("image %q cannot be had: %w: %w", name, backend.ErrInvalid, err)
	}
	return &backend.ImageError{Image: name, Reason: says(err, notNow), Cause: err}
}

// join returns the fetch of that name, which it starts if there is none. It fails after close, and when too many others are fetched.
func (b *Backend) join(name string, get func(context.Context, string) error) (*fetching, error) {
	f := &b.fetches
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, errors.New("docker is closed")
	}
	if fg := f.byName[name]; fg != nil {
		return fg, nil
	}
	if len(f.byName) >= maxFetches {
		return nil, fmt.Errorf("%d others are being fetched, the limit is %d", len(f.byName), maxFetches)
	}
	fg := &fetching{done: make(chan struct{})}
	f.byName[name] = fg
	f.wg.Go(func() { // ends with the fetch, its budget or the Backend
		defer close(fg.done)
		fg.err = b.fetchNow(name, get)
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.byName, name)
	})
	return fg, nil
}

func (b *Backend) fetchNow(name string, get func(context.Context, string) error) error {
	ctx, cancel := b.cfg.Clock.WithTimeout(b.fetches.ctx, fetchBudget)
	defer cancel()
	start := b.cfg.Clock.Now()
	b.cfg.Logger.Info("fetching image", zap.String("image", name))
	err := get(ctx, name)
	took := zap.Duration("took", b.cfg.Clock.Since(start))
	if err != nil {
		b.cfg.Logger.Warn("image not fetched", zap.String("image", name), took, zap.Error(err))
		return err
	}
	b.cfg.Logger.Info("image fetched", zap.String("image", name), took)
	return nil
}

// pull lets the engine fetch an image from its registry, and logs how far it has got.
func (b *Backend) pull(ctx context.Context, name string) error {
	resp, err := b.api.ImagePull(ctx, name, client.ImagePullOptions{})
	if err != nil {
		return err
	}
	defer resp.Close()
	said := b.cfg.Clock.Now()
	for msg, err := range resp.JSONMessages(ctx) {
		if err != nil {
			return err
		}
		if msg.Error != nil {
			return msg.Error
		}
		if b.cfg.Clock.Since(said) < progressEvery {
			continue
		}
		said = b.cfg.Clock.Now()
		fields := []zap.Field{zap.String("image", name), zap.String("layer", msg.ID), zap.String("status", msg.Status)}
		if msg.Progress != nil {
			fields = append(fields, zap.Int64("bytes", msg.Progress.Current), zap.Int64("of", msg.Progress.Total))
		}
		b.cfg.Logger.Info("fetching image", fields...)
	}
	return nil
}
