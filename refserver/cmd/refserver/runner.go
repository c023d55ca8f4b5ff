package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend/local"
	"github.com/keepwell-go/keepwell/backend/runner/dedicated"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

type runnerCmd struct {
	Host     string   `env:"-" placeholder:"DIR" help:"Host all sandboxes of this state directory."`
	Protocol int      `env:"-" placeholder:"N" default:"${protocol}" help:"Version of the protocol to speak, from ${oldest_protocol} on; an older one is for tests."`
	Args     []string `arg:"" optional:"" passthrough:"" help:"After --: serve one sandbox, as the first program of a container, by the arguments of keepwell-runner."`
}

// Run hosts sandboxes until it is told to end.
func (c *runnerCmd) Run(ctx context.Context) error {
	if c.Protocol < wire.OldestProtocol || wire.Protocol < c.Protocol {
		return usageError{fmt.Errorf("runner: --protocol %d is not among %d to %d", c.Protocol, wire.OldestProtocol, wire.Protocol)}
	}
	switch {
	case len(c.Args) > 0 && c.Host != "":
		return usageError{errors.New("runner: --host hosts the sandboxes of a state directory, and the arguments after -- serve one: give one of the two")}
	case len(c.Args) > 0:
		return c.dedicated(ctx)
	case c.Host == "":
		return usageError{errors.New("runner: --host DIR is missing: this mode hosts the sandboxes of a state directory")}
	}
	log, err := zap.NewProduction()
	if err != nil {
		return err
	}
	return local.Host(ctx, local.HostConfig{StateDir: c.Host, Version: version(), Protocol: c.Protocol, Logger: log})
}

// dedicated serves one sandbox. Its exit codes are those of this program.
func (c *runnerCmd) dedicated(ctx context.Context) error {
	args := c.Args
	if args[0] == "--" {
		args = args[1:]
	}
	args = append([]string{fmt.Sprintf("-protocol=%d", c.Protocol)}, args...)
	if code := dedicated.Run(ctx, args, version(), os.Stdout, os.Stderr); code != 0 {
		return statusError(code) // it has said why
	}
	return nil
}
