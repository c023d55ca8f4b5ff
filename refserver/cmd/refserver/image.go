package main

import (
	"context"
	"fmt"
)

type imageCmd struct {
	dockerFlags
}

// Help is shown after the flags' own words.
func (*imageCmd) Help() string {
	return `The engine is that of DOCKER_HOST, or the one at the usual socket; no registry is needed. The image has a static busybox as its
shell, where one is found in PATH, and the names of a few users. What serves the inside of sandboxes is no part of it: it goes to a
volume of its own, which is filled, too. With --image that image is fetched, and nothing is made. The name of the image is printed.

A server does the same by itself when the first sandbox is created.`
}

// Run makes the image and the runner's volume, and prints the image's name.
func (c *imageCmd) Run(ctx context.Context, g *cli) error {
	dir, err := stateDir(g.State)
	if err != nil {
		return err
	}
	if err := makeStateDir(dir); err != nil {
		return err
	}
	log := newLogger("auto")
	defer func() { _ = log.Sync() }() // a terminal cannot be synced
	be, err := c.open(dir, log)
	if err != nil {
		return err
	}
	defer be.Close()
	name, err := be.Prepare(ctx, "")
	if err != nil {
		return err
	}
	fmt.Println(name)
	return nil
}
