package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/local"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver/client"
)

// clientFlags are the flags of every client command.
type clientFlags struct {
	Server    string `placeholder:"URL" help:"The server. Default: the one that runs with the state directory."`
	TokenFile string `placeholder:"FILE" help:"File with the token. Default: the one in the state directory; KEEPWELL_TOKEN may carry it too."`
	JSON      bool   `env:"-" name:"json" help:"Print JSON."`
}

type createCmd struct {
	clientFlags
	ID       string            `arg:"" optional:"" help:"Id of the sandbox: lower case letters, digits and dashes. Default: the server picks one."`
	Env      map[string]string `env:"-" short:"e" mapsep:"none" placeholder:"NAME=VALUE" help:"Environment of its commands; may be repeated."`
	TTL      time.Duration     `env:"-" name:"ttl" placeholder:"DURATION" help:"Lifetime, after which it is stopped."`
	Idle     time.Duration     `env:"-" placeholder:"DURATION" help:"Idle time after which it is stopped."`
	Image    string            `env:"-" placeholder:"IMAGE" help:"Image of its container; refused where the backend has no images."`
	MemoryMB int64             `env:"-" name:"memory-mb" placeholder:"MIB" help:"Memory limit of each of its processes."`
	PIDs     int64             `env:"-" name:"pids" placeholder:"N" help:"Limit of processes."`
	Pinned   bool              `env:"-" help:"Never stop it for idleness or age."`
}

// Run creates the sandbox and prints its id.
func (c *createCmd) Run(ctx context.Context, g *cli) error {
	api, err := g.dial(c.clientFlags)
	if err != nil {
		return err
	}
	r := client.CreateRequest{
		ID: c.ID, Image: c.Image, Env: c.Env, TTLMS: c.TTL.Milliseconds(), IdleTimeoutMS: c.Idle.Milliseconds(), Pinned: c.Pinned,
	}
	if c.MemoryMB != 0 || c.PIDs != 0 {
		r.Limits = &client.Limits{MemoryMB: c.MemoryMB, PIDs: c.PIDs}
	}
	sb, err := patient(ctx, api, r)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(sb)
	}
	_, err = fmt.Println(sb.ID)
	return err
}

// patient creates the sandbox, as often as the server says that its image is still being fetched.
func patient(ctx context.Context, api *client.Client, r client.CreateRequest) (client.Sandbox, error) {
	for told := false; ; told = true {
		sb, err := api.Create(ctx, r)
		e, ok := errors.AsType[*client.Error](err)
		if !ok || e.Code != wire.CodePreparing {
			return sb, err
		}
		if !told {
			fmt.Fprintln(os.Stderr, "refserver: its image is being fetched; waiting for that")
		}
		select {
		case <-time.After(max(e.RetryAfter, time.Second)):
		case <-ctx.Done():
			return sb, context.Cause(ctx)
		}
	}
}

type lsCmd struct {
	clientFlags
	All   bool `env:"-" short:"a" help:"Stopped ones too."`
	Fresh bool `env:"-" help:"Ask the backend instead of the server's registry."`
}

// Run prints the sandboxes.
func (c *lsCmd) Run(ctx context.Context, g *cli) error {
	api, err := g.dial(c.clientFlags)
	if err != nil {
		return err
	}
	q := url.Values{}
	if c.Fresh || c.All {
		q.Set("fresh", "1")
	}
	got, err := api.List(ctx, q)
	if err == nil && c.All {
		var stopped []client.Sandbox
		stopped, err = api.List(ctx, url.Values{"state": {"stopped"}})
		got = append(got, stopped...)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(got)
	}
	return table(os.Stdout, "ID\tSTATE\tTENANT\tCREATED\tEXPIRES", got, func(sb client.Sandbox) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s", sb.ID, sb.State, sb.Tenant, when(sb.CreatedAtMS), when(sb.ExpiresAtMS))
	})
}

type rmCmd struct {
	clientFlags
	IfIdle bool     `env:"-" name:"if-idle" help:"Leave those alone that are busy, or that could not be asked."`
	IDs    []string `arg:"" name:"id" help:"Sandboxes."`
}

// Run destroys each sandbox; a failure of one does not spare the others.
func (c *rmCmd) Run(ctx context.Context, g *cli) error {
	words := words{done: "destroyed", gone: "was gone"}
	return c.each(g, c.IDs, words, func(api *client.Client, id string) (string, error) { return api.Delete(ctx, id, c.IfIdle) })
}

type stopCmd struct {
	clientFlags
	IDs []string `arg:"" name:"id" help:"Sandboxes."`
}

// Run stops each sandbox.
func (c *stopCmd) Run(ctx context.Context, g *cli) error {
	words := words{done: "stopped", gone: "was not running"}
	return c.each(g, c.IDs, words, func(api *client.Client, id string) (string, error) { return api.Stop(ctx, id) })
}

// words say to people what became of a sandbox.
type words struct{ done, gone string }

func (w words) of(outcome string) string {
	switch outcome {
	case backend.Stopped.String():
		return w.done
	case backend.Gone.String():
		return w.gone
	}
	return outcome
}

// each carries act out on every id and prints what came of it.
func (f clientFlags) each(g *cli, ids []string, words words, act func(*client.Client, string) (string, error)) error {
	api, err := g.dial(f)
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		outcome, err := act(api, id)
		if err != nil && client.Code(err) == "" && codeOf(err) == exitUnknown { // else the server has said so
			err = fmt.Errorf("it is not known whether it was %s: %w", words.done, err)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", id, err))
			continue
		}
		if f.JSON {
			err = printJSON(map[string]string{"id": id, "outcome": outcome})
		} else {
			_, err = fmt.Printf("%s %s\n", id, words.of(outcome))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

type downCmd struct {
	Backend string `placeholder:"NAME" default:"local" enum:"local,docker" help:"What runs the sandboxes (${enum}); a flag of the other is refused, and its variable is not read. Default: ${default}."`
	Owner   string `backend:"docker" placeholder:"NAME" help:"Docker: whose sandboxes. Default: derived from the key in the state directory."`
}

// Run ends all that the state directory holds running. It needs no server.
func (c *downCmd) Run(ctx context.Context, g *cli) error {
	dir, err := stateDir(g.State)
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir); g.State != "" && err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	down := func() (int, error) { return local.Down(ctx, local.Config{StateDir: dir}) }
	if c.Backend == backendDocker {
		down = func() (int, error) { return dockerFlags{Owner: c.Owner}.down(ctx, dir) }
	}
	n, err := down()
	if err != nil {
		return err
	}
	fmt.Printf("stopped %s; the workspaces are kept\n", sandboxes(n))
	return nil
}
