package local

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend"
)

// maxConns bounds the connections of one Backend to the host: more calls wait for one of them. The kernel queues a good deal
// more than this before it turns a connection away.
const maxConns = 64

// idleConns is how long a connection waits for a next call. The host waits longer, so that it never hangs up on one that is
// just being made.
const idleConns = time.Minute

// Config holds the settings of a Backend.
type Config struct {
	StateDir string // required; made if absent, and closed to everybody but its owner; refused if it is open and holds what is not ours
	// Command starts a host runner, arguments included. Nil: this program with the arguments `runner --host StateDir`, which then has to
	// call Host.
	Command []string
	// RequireConfinement refuses a host runner that lacks a uid for each sandbox, no_new_privs or Landlock.
	RequireConfinement bool
	Clock              clock.Clock // nil: the real one
	Logger             *zap.Logger // nil: silent
}

// Backend asks the host runner of one state directory, and starts it when it does not answer. It implements
// [backend.Backend] and [backend.Marker], and is safe for concurrent use. Two Backends of one state directory, of one process or
// of several, see the same sandboxes; those of two state directories never do.
type Backend struct {
	cfg     Config
	dir     string
	held    *os.File // the state directory, open, for a socket path that is too long
	socket  string
	client  *http.Client
	start   chan struct{}  // capacity 1: full while this Backend starts a host
	stop    chan struct{}  // closed by Close
	watched sync.WaitGroup // the watch over the host, which stop ends

	mu     sync.Mutex // guards the fields below
	info   info       // of the host that answered last
	key    string     // of the state directory; "" until a host was seen
	child  int        // the host that this Backend started and has not waited for; 0: none
	closed bool
}

// Open returns a Backend whose host runner answers, and starts one if need be, which takes some milliseconds. It fails when the
// host does not come up within 15 s, with the last lines of its log; when it speaks another version of the protocol; and when
// confinement is required and not to be had.
func Open(cfg Config) (*Backend, error) {
	b, err := open(cfg)
	if err != nil {
		return nil, err
	}
	if len(cfg.Command) == 0 && slices.Equal(os.Args[1:], hostArgs(b.dir)) { // it would wait for itself
		b.Close()
		return nil, fmt.Errorf("local: this process was started to be the host runner of %s and calls Open: with the arguments `%s` it has to call Host",
			b.dir, strings.Join(hostArgs("DIR"), " "))
	}
	if err := b.ensure(context.Background()); err != nil {
		err = errors.Join(err, b.retract(err))
		b.Close()
		return nil, err
	}
	b.watched.Go(func() { b.watch(b.stop) })
	return b, nil
}

// retract ends the host that this Backend has just started and may not use.
func (b *Backend) retract(cause error) error {
	b.mu.Lock()
	started := b.child != 0
	b.mu.Unlock()
	if !started || !errors.Is(cause, ErrConfinement) {
		return nil
	}
	_, err := b.down(context.Background())
	return err
}

func open(cfg Config) (*Backend, error) {
	if cfg.Clock == nil {
		cfg.Clock = clock.New()
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	dir, err := resolveDir(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	held, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("local: state directory: %w", err)
	}
	b := &Backend{cfg: cfg, dir: dir, held: held, start: make(chan struct{}, 1), stop: make(chan struct{})}
	if b.socket, err = socketPath(dir, held); err != nil {
		held.Close()
		return nil, err
	}
	b.client = &http.Client{Transport: &http.Transport{
		DialContext: dialer(b.socket), MaxIdleConnsPerHost: maxConns, MaxConnsPerHost: maxConns, IdleConnTimeout: idleConns, DisableCompression: true,
	}}
	return b, nil
}

// Close gives up what the Backend holds. The host runner and its sandboxes go on. Calls after it, and endpoints that it gave
// out, fail. It may be called twice.
func (b *Backend) Close() {
	b.mu.Lock()
	closed := b.closed
	b.closed = true
	b.mu.Unlock()
	if closed {
		return
	}
	close(b.stop)
	b.watched.Wait()
	b.client.CloseIdleConnections()
	b.collect()
	_ = b.held.Close()
}

// Confinement says what the host enforces and what it does not, one sentence each.
func (b *Backend) Confinement() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.info.Confinement)
}

// Create implements [backend.Backend]. Image is kept and otherwise without meaning; memory is limited for each process, and only
// where the spec asks for it; CPUs are not limited.
func (b *Backend) Create(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
	if err := s.Check(); err != nil {
		return backend.Sandbox{}, fmt.Errorf("local: create: %w", err)
	}
	var made sandbox
	if err := b.call(ctx, http.MethodPost, sandboxesPath, createOf(s), &made); err != nil {
		return backend.Sandbox{}, err
	}
	return made.sandbox(b.endpoint()), nil
}

// List implements [backend.Backend]. It is incomplete as long as the label of a sandbox cannot be read.
func (b *Backend) List(ctx context.Context, ids ...string) (backend.Snapshot, error) {
	path := sandboxesPath
	if len(ids) > 0 {
		path += "?" + url.Values{"id": ids}.Encode()
	}
	var got snapshot
	if err := b.call(ctx, http.MethodGet, path, nil, &got); err != nil {
		return backend.Snapshot{}, err
	}
	snap := backend.Snapshot{Sandboxes: make([]backend.Sandbox, 0, len(got.Sandboxes)), Complete: got.Complete}
	e := b.endpoint()
	for _, sb := range got.Sandboxes {
		snap.Sandboxes = append(snap.Sandboxes, sb.sandbox(e))
	}
	return snap, nil
}

// Stop implements [backend.Backend].
func (b *Backend) Stop(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
	return b.change(ctx, r, "stop", false)
}

// Destroy implements [backend.Backend]. A workspace that cannot be removed is Unknown and an error that names what stays; the
// sandbox is listed as stopped then, and Destroy can be called again.
func (b *Backend) Destroy(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
	return b.change(ctx, r, "destroy", false)
}

// Mark implements [backend.Marker].
func (b *Backend) Mark(ctx context.Context, r backend.Ref, pinned bool) (backend.Outcome, error) {
	return b.change(ctx, r, "mark", pinned)
}

func (b *Backend) change(ctx context.Context, r backend.Ref, verb string, pinned bool) (backend.Outcome, error) {
	if err := r.Check(); err != nil {
		return backend.Unknown, fmt.Errorf("local: %s: %w", verb, err)
	}
	var got outcomeAnswer
	path := strings.Join([]string{sandboxesPath, r.ID, verb}, "/")
	if err := b.call(ctx, http.MethodPost, path, refRequest{r.Instance, pinned}, &got); err != nil {
		return backend.Unknown, err
	}
	return outcomeOf(got.Outcome)
}

// Ping implements [backend.Backend]. It starts nothing.
func (b *Backend) Ping(ctx context.Context) error {
	_, err := b.ping(ctx)
	return err
}

// Down stops every sandbox and ends the host runner, which the next call would start again. It returns how many were running.
func (b *Backend) Down(ctx context.Context) (int, error) {
	return b.down(ctx)
}

// Down stops every sandbox of cfg.StateDir and ends its host runner, of whatever version. It returns how many were running. When no
// host runs, what a former one left running is killed all the same.
func Down(ctx context.Context, cfg Config) (int, error) {
	if _, err := os.Stat(cfg.StateDir); os.IsNotExist(err) {
		return 0, nil
	}
	b, err := open(cfg)
	if err != nil {
		return 0, err
	}
	defer b.Close()
	return b.down(ctx)
}

func (b *Backend) endpoint() backend.Endpoint {
	b.mu.Lock()
	defer b.mu.Unlock()
	return backend.Endpoint{Network: "unix", Address: b.socket, Token: b.key}
}
