// Package docker runs sandboxes as containers of a Docker Engine, 20.10 or newer.
//
// It prevents the faults of a server whose truth is an engine that others use, too: the loser of a race for a name removes the
// winner's container; a volume is deleted by a name that has changed hands meanwhile; "no such container" is said of an engine that
// did not answer; a container that a dead server has left half made is found by nobody.
//
// A sandbox is the container kw-<owner>-<id>. Its name is the claim, which the engine grants once; everything else that is made for
// it has a name that no other create ever uses, so that a late removal hits what it meant or nothing. All of it is labelled by the
// very call that makes it. A stopped sandbox is its exited container; a workspace whose container somebody removed is a stopped
// sandbox, too.
//
// The program that serves the inside of a sandbox is on a volume of its own, which is filled once for each build of that program and
// mounted so that nobody can write to it. So an image needs to contain nothing, not even a shell.
package docker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/moby/moby/client"
	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend"
)

// minKey is the shortest secret, in bytes, from which tokens are derived that cannot be guessed.
const minKey = 16

// Config holds the settings of a Backend. Owner, Key and Runner are required.
type Config struct {
	// Owner is the installation that the sandboxes belong to: 1 to 32 of a-z and 0-9. What other owners
	// have on the engine is neither listed nor touched.
	Owner string
	// Key is the secret, of at least 16 bytes, that the runners' tokens are derived from. All replicas of an owner need the same.
	Key []byte
	// Runner is the path of the program that serves the inside of a sandbox. One that is not static takes along the loader and the
	// libraries of this machine.
	Runner string
	// RunnerArgs come before the runner's own arguments, for a program that is a runner by one of its commands.
	RunnerArgs []string

	Host    string // of the engine, as unix:///path or tcp://host:port; "": DOCKER_HOST, or else the usual socket
	Image   string // for sandboxes that name none; "": one that is made here, with Shell as its only program
	Shell   string // path of a static shell such as busybox for that image; "": no shell
	Network string // name of the network that sandboxes join; "": one that is made for this owner
	// Publish reaches runners through ports of 127.0.0.1, for an engine whose networks cannot be reached from here.
	Publish bool
	// NoEgress makes the owner's network one without a way out. It cannot be combined with Network or Publish.
	NoEgress bool

	Clock  clock.Clock // nil: the real one
	Logger *zap.Logger // nil: silent
}

// Backend makes sandboxes on one engine. It implements [backend.Backend] and [backend.Marker] and is safe for concurrent use. It
// holds nothing that the engine does not know, so that several Backends of one owner are replicas of each other.
//
// No call retries, and none has a budget of its own but the fetch of an image: [backend.Budgets] gives them one.
type Backend struct {
	cfg     Config
	api     *client.Client
	version version
	runner  program
	web     *http.Client // to the runners
	base    once         // of what all sandboxes share
	fetches fetches
	made    atomic.Pointer[madeImage] // nil until it is first needed
}

// Open returns a Backend. It reads the runner and asks the engine nothing, which may be down for now.
func Open(cfg Config) (*Backend, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.New()
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	runner, err := readProgram(cfg.Runner)
	if err != nil {
		return nil, err
	}
	opts := []client.Opt{client.FromEnv}
	if cfg.Host != "" {
		opts = append(opts, client.WithHost(cfg.Host))
	}
	api, err := client.New(opts...)
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	b := &Backend{cfg: cfg, api: api, runner: runner, web: newWeb(), base: once{turn: make(chan struct{}, 1)}}
	b.fetches.open()
	return b, nil
}

var ownerForm = regexp.MustCompile(`^[a-z0-9]{1,32}$`)

func (c *Config) check() error {
	switch {
	case !ownerForm.MatchString(c.Owner):
		return fmt.Errorf("docker: Owner is %q, 1 to 32 of a-z and 0-9 are needed", c.Owner)
	case len(c.Key) < minKey:
		return fmt.Errorf("docker: Key has %d bytes, at least %d are needed", len(c.Key), minKey)
	case c.Runner == "":
		return errors.New("docker: Runner is missing")
	case c.NoEgress && (c.Publish || c.Network != ""):
		return errors.New("docker: NoEgress needs the owner's own network, without Publish and Network")
	}
	return nil
}

// Close cancels whatever image is being fetched, and returns when no fetch is left. The sandboxes go on. It may be called twice.
func (b *Backend) Close() {
	b.fetches.close()
	b.web.CloseIdleConnections()
	_ = b.api.Close() // only idle connections, which cannot fail
}

// Ping implements [backend.Backend].
func (b *Backend) Ping(ctx context.Context) error {
	if _, err := b.api.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		return unasked("ping", err)
	}
	b.version.set()
	return nil
}

// version says whether the engine and this client have agreed on a version of the API. Before that every other call would be
// refused as malformed.
type version struct {
	mu     sync.Mutex // guards agreed
	agreed bool
}

func (v *version) known() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.agreed
}

func (v *version) set() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.agreed = true
}

// agree makes sure that the API's version is agreed upon. Nothing is changed by it, so its error is ErrUnavailable.
func (b *Backend) agree(ctx context.Context) error {
	if b.version.known() {
		return ctx.Err()
	}
	return b.Ping(ctx)
}

// sleep waits for d, or for the end of ctx.
func (b *Backend) sleep(ctx context.Context, d time.Duration) error {
	timer := b.cfg.Clock.Timer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unasked is the error of a question that got no answer, and that changes nothing.
func unasked(what string, err error) error {
	return fmt.Errorf("docker: %s: %w: %w", what, backend.ErrUnavailable, err)
}
