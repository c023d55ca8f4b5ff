package main

import (
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/alecthomas/kong"
)

// backendTag marks a flag that one backend alone reads, by that backend's name.
const backendTag = "backend"

// checkRead refuses a flag that the chosen backend would not read: who gave it believes that it does something. A variable of that kind
// is a warning, as one that stands for no flag is: servers of several backends may share an environment.
func checkRead(command *kong.Context, stderr io.Writer) error {
	flags := command.Selected().Flags
	chosen := slices.IndexFunc(flags, func(f *kong.Flag) bool { return f.Name == "backend" })
	if chosen < 0 {
		return nil
	}
	backend := flags[chosen].Target.String()
	for _, f := range flags {
		reader := f.Tag.Get(backendTag)
		if reader == "" || reader == backend {
			continue
		}
		if slices.ContainsFunc(command.Path, func(p *kong.Path) bool { return p.Flag == f }) {
			return fmt.Errorf("--%s is read with --backend %s alone, and this is --backend %s", f.Name, reader, backend)
		}
		for _, name := range f.Envs {
			if os.Getenv(name) != "" {
				fmt.Fprintf(stderr, "refserver: warning: the environment variable %s is not read with --backend %s\n", name, backend)
			}
		}
	}
	return nil
}
