package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

type cpCmd struct {
	clientFlags
	From string `arg:"" help:"File, or SANDBOX:PATH; - is stdin."`
	To   string `arg:"" help:"File or directory, or SANDBOX:PATH, where a directory ends in a slash; - is stdout."`
}

// Help is what --help adds.
func (*cpCmd) Help() string {
	return `It copies one file. A directory goes through tar:

tar -c DIR | refserver exec -i SANDBOX tar -x

refserver exec SANDBOX tar -c DIR | tar -x`
}

// Run copies one file in or out.
func (c *cpCmd) Run(ctx context.Context, g *cli) error {
	fromID, fromPath, fromInside := inside(c.From)
	toID, toPath, toInside := inside(c.To)
	if fromInside == toInside {
		return usageError{errors.New("cp: exactly one of the two must be SANDBOX:PATH")}
	}
	if fromInside && fromID == "" || toInside && toID == "" {
		return usageError{errors.New("cp: the SANDBOX of SANDBOX:PATH is empty")}
	}
	if toInside && isDirectory(toPath) {
		if c.From == "-" {
			return usageError{errors.New("cp: stdin has no name: the target must say one")}
		}
		toPath = path.Join(toPath, filepath.Base(c.From))
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
		return save(c.To, path.Base(fromPath), content)
	}
}

// inside takes ID:PATH apart. A path of this machine that holds a colon is told apart by a leading ./ or /.
func inside(arg string) (id, file string, ok bool) {
	id, file, ok = strings.Cut(arg, ":")
	return id, file, ok && !strings.ContainsAny(id, "/.")
}

func source(file string) (io.ReadCloser, error) {
	if file == "-" {
		return io.NopCloser(os.Stdin), nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		_ = f.Close()
		return nil, fmt.Errorf("cp: %s is a directory, and one file is copied at a time; see refserver cp --help", file)
	}
	return f, nil
}

// isDirectory tells a path of a sandbox that can name nothing but a directory, such as that of "box:" and "box:dir/".
func isDirectory(inside string) bool {
	last := inside[strings.LastIndex(inside, "/")+1:]
	return last == "" || last == "." || last == ".."
}

// save writes content to a file, or to one of that name if to is a directory. A new file that did not get whole is removed.
func save(to, name string, content io.Reader) error {
	if to == "-" {
		_, err := io.Copy(os.Stdout, content)
		return err
	}
	if info, err := os.Stat(to); err == nil && info.IsDir() {
		to = filepath.Join(to, name)
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	made := err == nil
	if errors.Is(err, fs.ErrExist) {
		f, err = os.Create(to)
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	err = errors.Join(err, f.Close())
	if err != nil && made {
		err = errors.Join(err, os.Remove(to))
	}
	return err
}
