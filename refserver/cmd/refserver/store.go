package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/refserver/binding"
	"github.com/keepwell-go/keepwell/refserver/binding/database"
)

const (
	storeMemory   = "memory"
	storeVariable = envPrefix + "_STORE"
	storeFile     = "bindings.db" // in the state directory
)

// storeFlags say where it is kept which process an id means, where a runner knows it by another.
type storeFlags struct {
	Store string `placeholder:"URL" help:"Where the ids of processes are kept: memory, sqlite:/PATH, or postgres://… to share them. A URL with a password belongs into the variable: arguments are seen by all users. Default: bindings.db in the state directory."`
}

// check refuses what no store can be opened by. It shows nothing of a value that may have a password in it.
func (f storeFlags) check() error {
	scheme, rest, _ := strings.Cut(f.Store, ":")
	switch {
	case f.Store == "" || f.Store == storeMemory:
		return nil
	case scheme == "sqlite" && filepath.IsAbs(rest):
		return nil
	case scheme == "sqlite":
		return fmt.Errorf("--store %s: the path must be absolute: sqlite:/PATH", f.Store)
	case (scheme == "postgres" || scheme == "postgresql") && strings.HasPrefix(rest, "//"):
		return nil
	}
	return errors.New("--store is none of memory, sqlite:/PATH and postgres://USER@HOST/DATABASE")
}

// openStore opens the store of the flags. Programs that this one starts need none, so they do not get the variable.
func (f storeFlags) openStore(ctx context.Context, dir string, log *zap.Logger) (binding.Store, error) {
	if f.Store != os.Getenv(storeVariable) && hasPassword(f.Store) {
		log.Warn("the password in --store is seen by all users of this machine: give the URL as " + storeVariable + ", or a passfile")
	}
	if err := os.Unsetenv(storeVariable); err != nil {
		return nil, err
	}
	return openStore(ctx, f.Store, dir, log)
}

// openStore opens the store of a URL; that of an empty one lies in the state directory dir, which exists.
func openStore(ctx context.Context, url, dir string, log *zap.Logger) (binding.Store, error) {
	switch url {
	case storeMemory:
		log.Warn("which processes ids mean is kept in memory: after a restart, those of old runners are found by their runners' ids alone")
		return binding.NewMemory(), nil
	case "":
		url = "sqlite:" + filepath.Join(dir, storeFile)
	}
	store, err := database.Open(ctx, url, database.Config{Logger: log})
	if err != nil {
		return nil, fmt.Errorf("--store: %w", err)
	}
	return store, nil
}

// ours returns store without the rows of other owners, whose sandboxes a Docker backend does not list and would have forgotten.
func (c *serveCmd) ours(store binding.Store, key string) binding.Store {
	if c.Backend != backendDocker {
		return store
	}
	return binding.Scope(store, c.owner(key))
}

// closeStore closes a store that nobody uses any more. What it kept is on the disk already.
func closeStore(store binding.Store, log *zap.Logger) {
	if err := store.Close(); err != nil {
		log.Warn("the store of process ids was not closed as it should be", zap.Error(err))
	}
}

// hasPassword says whether a URL has a password in it.
func hasPassword(text string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return false // it is refused later
	}
	_, set := u.User.Password()
	return set || u.Query().Has("password") || u.Query().Has("sslpassword")
}
