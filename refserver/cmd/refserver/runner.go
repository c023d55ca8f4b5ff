package main

import (
	"context"
	"errors"
	"os"

	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend/local"
	"github.com/keepwell-go/keepwell/backend/runner/dedicated"
)

type runnerCmd struct {
	Host string   `env:"-" placeholder:"DIR" help:"Host all sandboxes of this state directory."`
	Args []string `arg:"" optional:"" passthrough:"" help:"After --: serve one sandbox, as the first program of a container, by the arguments of keepwell-runner."`
}

// Run hosts sandboxes until it is told to end.
func (c *runnerCmd) Run(ctx context.Context) error {
	if len(c.Args) > 0 {
		return c.dedicated(ctx)
	}
	if c.Host == "" {
		return usageError{errors.New("runner: --host DIR is missing: this mode hosts the sandboxes of a state directory")}
	}
	log, err := zap.NewProduction()
	if err != nil {
		return err
	}
	return local.Host(ctx, local.HostConfig{StateDir: c.Host, Version: version(), Logger: log})
}

// dedicated serves one sandbox. Its exit codes are those of this program.
func (c *runnerCmd) dedicated(ctx context.Context) error {
	args := c.Args
	if args[0] == "--" {
		args = args[1:]
	}
	if code := dedicated.Run(ctx, args, version(), os.Stdout, os.Stderr); code != 0 {
		return statusError(code) // it has said why
	}
	return nil
}
