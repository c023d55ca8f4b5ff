package main

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend/local"
)

type runnerCmd struct {
	Host string `env:"-" placeholder:"DIR" help:"Host all sandboxes of this state directory."`
}

// Run hosts sandboxes until it is told to end.
func (c *runnerCmd) Run(ctx context.Context) error {
	if c.Host == "" {
		return usageError{errors.New("runner: --host DIR is missing: this mode hosts the sandboxes of a state directory")}
	}
	log, err := zap.NewProduction()
	if err != nil {
		return err
	}
	return local.Host(ctx, local.HostConfig{StateDir: c.Host, Version: version(), Logger: log})
}
