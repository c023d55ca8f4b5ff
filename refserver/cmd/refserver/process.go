package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver/client"
)

type psCmd struct {
	clientFlags
	ID string `arg:"" help:"Sandbox."`
}

// Run prints the processes.
func (c *psCmd) Run(ctx context.Context, g *cli) error {
	api, err := g.dial(c.clientFlags)
	if err != nil {
		return err
	}
	got, err := api.Processes(ctx, c.ID)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(got)
	}
	slices.SortStableFunc(got, func(a, b wire.Process) int { return cmp.Compare(a.StartedAtMS, b.StartedAtMS) })
	return table(os.Stdout, "PROCESS\tSTATE\tSTARTED\tCOMMAND", got, func(p wire.Process) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s", p.ID, stateOf(p), when(p.StartedAtMS), oneLine(commandLine(p.Cmd)))
	})
}

func stateOf(p wire.Process) string {
	switch {
	case p.Running:
		return "running"
	case p.Signal != nil:
		return *p.Signal
	case p.ExitCode != nil:
		return fmt.Sprintf("exit %d", *p.ExitCode)
	}
	return "ended"
}

func commandLine(c wire.Command) string {
	if c.Argv != nil {
		return strings.Join(c.Argv, " ")
	}
	return c.Line
}

type logsCmd struct {
	clientFlags
	Follow  bool   `env:"-" short:"f" help:"Go on until the process ends, and end with its code."`
	Stdout  int64  `env:"-" name:"stdout-offset" placeholder:"BYTES" help:"First byte of stdout to print."`
	Stderr  int64  `env:"-" name:"stderr-offset" placeholder:"BYTES" help:"First byte of stderr to print."`
	ID      string `arg:"" help:"Sandbox."`
	Process string `arg:"" help:"Process id."`
}

// Run prints the output that is kept.
func (c *logsCmd) Run(ctx context.Context, g *cli) error {
	api, err := g.dial(c.clientFlags)
	if err != nil {
		return err
	}
	stream, err := client.Process{Client: api, Sandbox: c.ID, ID: c.Process}.Output(ctx, c.Stdout, c.Stderr, c.Follow)
	if err != nil {
		return err
	}
	s := show{json: c.JSON}
	err = s.all(stream)
	if !c.Follow && errors.Is(err, client.ErrTruncated) {
		return nil // it still runs
	}
	if _, ended := errors.AsType[statusError](err); ended && !c.Follow {
		return nil // printing worked, whatever the process made of its life
	}
	return err
}

type killCmd struct {
	clientFlags
	Grace   time.Duration `env:"-" placeholder:"DURATION" help:"Send SIGTERM and wait this long before SIGKILL."`
	ID      string        `arg:"" help:"Sandbox."`
	Process string        `arg:"" help:"Process id."`
}

// Run kills the process and says whether it was this call that did.
func (c *killCmd) Run(ctx context.Context, g *cli) error {
	api, err := g.dial(c.clientFlags)
	if err != nil {
		return err
	}
	killed, err := client.Process{Client: api, Sandbox: c.ID, ID: c.Process}.Kill(ctx, c.Grace)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(wire.Killed{ID: c.Process, Killed: killed})
	}
	_, err = fmt.Printf("killed: %t\n", killed)
	return err
}
