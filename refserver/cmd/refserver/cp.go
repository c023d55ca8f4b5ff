package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
)

type cpCmd struct {
	clientFlags
	From string `arg:"" help:"File, or SANDBOX:PATH; - is stdin."`
	To   string `arg:"" help:"File, or SANDBOX:PATH; - is stdout."`
}

// Run copies one file in or out.
func (c *cpCmd) Run(ctx context.Context, g *cli) error {
	fromID, fromPath, fromInside := inside(c.From)
	toID, toPath, toInside := inside(c.To)
	if fromInside == toInside {
		return usageError{errors.New("cp: exactly one of the two must be SANDBOX:PATH")}
	}
	api, err := g.dial(c.clientFlags)
	if err != nil {
		return err
	}
	switch {
	case toInside:
		in, err := source(c.From)
		if err != nil {
			return err
		}
		defer in.Close()
		return api.WriteFile(ctx, toID, toPath, in)
	default:
		content, err := api.ReadFile(ctx, fromID, fromPath)
		if err != nil {
			return err
		}
		defer content.Close()
		return save(c.To, content)
	}
}

// inside takes ID:PATH apart. A path of this machine that holds a colon is told apart by a leading ./ or /.
func inside(arg string) (id, path string, ok bool) {
	id, path, ok = strings.Cut(arg, ":")
	return id, path, ok && !strings.ContainsAny(id, "/.")
}

func source(path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(os.Stdin), nil
	}
	return os.Open(path)
}

func save(path string, content io.Reader) error {
	if path == "-" {
		_, err := io.Copy(os.Stdout, content)
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}
