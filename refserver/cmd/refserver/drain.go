package main

import (
	"context"
	"fmt"
	"os"

	"github.com/keepwell-go/keepwell/refserver/client"
)

type drainCmd struct {
	clientFlags
	Status bool `env:"-" help:"Only say how far it is, and begin nothing."`
}

// Run begins the drain of the server and says what it still serves.
func (c *drainCmd) Run(ctx context.Context, g *cli) error {
	api, err := g.dial(c.clientFlags)
	if err != nil {
		return err
	}
	if !c.Status {
		if _, err := api.Drain(ctx); err != nil {
			return err
		}
	}
	got, err := api.DrainStatus(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(got)
	}
	since := "not draining"
	if got.Draining {
		since = "draining since " + when(got.SinceMS)
	}
	if _, err = fmt.Printf("%s: %s, %d busy\n", since, sandboxes(got.Sandboxes), len(got.Busy)); err != nil || len(got.Busy) == 0 {
		return err
	}
	return table(os.Stdout, "BUSY\tWHY", got.Busy, func(b client.Busy) string { return b.ID + "\t" + oneLine(b.Reason) })
}
