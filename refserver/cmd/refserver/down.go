package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/keepwell-go/keepwell/backend"
)

// downAtOnce is how many sandboxes are being stopped at the same time.
const downAtOnce = 8

// down stops what runs of the owner that the state directory or --owner names, and returns how many it has stopped. Each that could
// not be stopped is in the error.
func (f dockerFlags) down(ctx context.Context, dir string) (int, error) {
	if _, err := os.Stat(filepath.Join(dir, keyFile)); err != nil && f.Owner == "" {
		return 0, fmt.Errorf("no server was ever started with the state directory, so it is not known whose sandboxes to stop; give --owner: %w", err)
	}
	if err := makeStateDir(dir); err != nil {
		return 0, err
	}
	engine, err := f.open(dir, zap.NewNop())
	if err != nil {
		return 0, err
	}
	defer engine.Close()
	return stopAll(ctx, backend.Budgets{}.Bound(engine))
}

func stopAll(ctx context.Context, be backend.Backend) (int, error) {
	snap, err := be.List(ctx)
	if err != nil {
		return 0, err
	}
	var stopped atomic.Int64
	errs := make([]error, len(snap.Sandboxes))
	var g errgroup.Group
	g.SetLimit(downAtOnce)
	for i, sb := range snap.Sandboxes {
		if !sb.Running {
			continue
		}
		g.Go(func() error {
			out, err := be.Stop(ctx, sb.Ref)
			if out == backend.Stopped {
				stopped.Add(1)
			}
			errs[i] = err
			return nil
		})
	}
	_ = g.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, fmt.Errorf("stopped %s, and it is not known whether these are, too:\n%w", sandboxes(int(stopped.Load())), err)
	}
	return int(stopped.Load()), nil
}
