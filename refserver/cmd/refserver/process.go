package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver/client"
)

type execCmd struct {
	clientFlags
	Detach  bool              `env:"-" short:"d" help:"Start it in the background and print its process id."`
	Kill    bool              `env:"-" name:"kill-on-disconnect" help:"Kill it when this command ends before it does."`
	Env     map[string]string `env:"-" short:"e" mapsep:"none" placeholder:"NAME=VALUE" help:"Environment; may be repeated."`
	Cwd     string            `env:"-" help:"Directory, relative to the workspace."`
	Timeout time.Duration     `env:"-" help:"Kill it after this time."`
	ID      string            `arg:"" help:"Sandbox."`
	Command []string          `arg:"" passthrough:"" help:"Command and arguments; one argument alone is a line for the shell."`
}

// Run starts the command and, unless detached, ends with its code.
func (c *execCmd) Run(ctx context.Context, g *cli) error {
	api, err := g.dial(c.clientFlags)
	if err != nil {
		return err
	}
	r := wire.StartRequest{Cmd: commandOf(c.Command), Env: c.Env, Cwd: c.Cwd, Timeout: c.Timeout.Seconds(), KillOnDisconnect: c.Kill}
	if c.Detach {
		_, started, err := api.Start(ctx, c.ID, r)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(started)
		}
		fmt.Println(started.ID)
		return nil
	}
	stream, err := api.Exec(ctx, c.ID, r)
	if err != nil {
		return err
	}
	return c.show(stream)
}

// commandOf drops a leading --, and takes a single word with a space in it for a shell line.
func commandOf(args []string) wire.Command {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 1 && strings.ContainsAny(args[0], " \t\n|&;<>$") {
		return wire.Command{Line: args[0]}
	}
	return wire.Command{Argv: args}
}

// show prints a stream as it comes and turns its end into an exit code.
func (f clientFlags) show(stream *client.Stream) error {
	defer stream.Close()
	for ev, err := range stream.All() {
		if err != nil {
			return err
		}
		if f.JSON {
			if err := printJSON(ev); err != nil {
				return err
			}
		}
		if err := f.event(ev); err != nil {
			return err
		}
	}
	return nil
}

func (f clientFlags) event(ev wire.Event) error {
	switch ev.Event {
	case wire.EventStdout:
		return f.write(os.Stdout, ev)
	case wire.EventStderr:
		return f.write(os.Stderr, ev)
	case wire.EventGap:
		fmt.Fprintf(os.Stderr, "refserver: bytes %d to %d of %s were dropped before they were read\n", ev.From, ev.To, ev.Stream)
	case wire.EventError:
		return &client.Error{Code: ev.Code, Message: ev.Error}
	case wire.EventExit:
		return statusOf(ev)
	}
	return nil
}

func (f clientFlags) write(w io.Writer, ev wire.Event) error {
	if f.JSON {
		return nil
	}
	_, err := w.Write(client.Bytes(ev))
	return err
}

// statusOf gives a command that was killed the code that shells give it, 128 and the signal's number.
func statusOf(ev wire.Event) error {
	switch {
	case ev.Signal != nil:
		if n := unix.SignalNum(*ev.Signal); n != syscall.Signal(0) {
			return statusError(128 + int(n))
		}
		return statusError(exitFailed)
	case ev.ExitCode != nil && *ev.ExitCode != 0:
		return statusError(*ev.ExitCode)
	}
	return nil
}

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
	return table(os.Stdout, "PROCESS\tSTATE\tSTARTED\tCOMMAND", got, func(p wire.Process) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s", p.ID, stateOf(p), when(p.StartedAtMS), commandLine(p.Cmd))
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
	Stdout  int64  `env:"-" name:"stdout-offset" help:"First byte of stdout to print."`
	Stderr  int64  `env:"-" name:"stderr-offset" help:"First byte of stderr to print."`
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
	err = c.show(stream)
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
	Grace   time.Duration `env:"-" help:"Send SIGTERM and wait this long before SIGKILL."`
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
	fmt.Printf("killed: %t\n", killed)
	return nil
}
