package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend/runner"
	"github.com/keepwell-go/keepwell/backend/runner/spawn"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// Names in the state directory. All that is not a sandbox begins with "host.".
const (
	sandboxesDir = "sandboxes"
	socketFile   = "host.sock"
	keyFile      = "host.key"   // what a caller must show: the socket's mode does not keep out a sandbox of the same user
	lockFile     = "host.lock"  // held by the host as long as it lives
	startFile    = "host.start" // held by whoever starts a host
	logFile      = "host.log"
)

// sendBuffer is how many bytes the socket holds for a reader that is not there yet.
const sendBuffer = 1 << 20

// ErrHosted is returned by Host when another host runner has the state directory.
var ErrHosted = errors.New("local: another host runner has this state directory")

// HostConfig holds the settings of a host runner.
type HostConfig struct {
	StateDir string // required
	Version  string // of the build, for a person
	MaxFile  int64  // bytes of one written file; 0: wire.MaxFile
	Protocol int    // that sandboxes are spoken to in, for tests of older runners; 0: wire.Protocol
	Clock    clock.Clock
	Logger   *zap.Logger
}

// Host runs the sandboxes of a state directory until ctx ends or a Backend sends Down; either way all of them are stopped, and
// their workspaces kept, before it returns nil. It is what the process that Config.Command names does, and its only task: it
// waits for every child of the process. What a former host left running is killed first.
func Host(ctx context.Context, cfg HostConfig) error {
	if cfg.Clock == nil {
		cfg.Clock = clock.New()
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	if cfg.Protocol == 0 {
		cfg.Protocol = wire.Protocol
	}
	if cfg.Protocol < wire.OldestProtocol || wire.Protocol < cfg.Protocol {
		return fmt.Errorf("local: host: protocol %d is not among %d to %d", cfg.Protocol, wire.OldestProtocol, wire.Protocol)
	}
	cfg.Logger = calm(cfg.Logger)
	dir, err := resolveDir(cfg.StateDir)
	if err != nil {
		return err
	}
	lock, err := lockSoon(filepath.Join(dir, lockFile), cfg.Clock)
	if errors.Is(err, errLocked) {
		return fmt.Errorf("%w: %s", ErrHosted, dir)
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := sign(lock); err != nil {
		return err
	}
	syscall.Umask(0o022) // sandboxes have to pass some directories; their processes inherit it
	key, err := makeKey(dir)
	if err != nil {
		return err
	}
	h, err := newHost(ctx, dir, key, cfg)
	if err != nil {
		return err
	}
	defer h.close()
	return h.serve(ctx, dir, key)
}

func newHost(ctx context.Context, dir, key string, cfg HostConfig) (*host, error) {
	st, err := openStore(filepath.Join(dir, sandboxesDir))
	if err != nil {
		return nil, err
	}
	records, err := st.load()
	if err != nil {
		return nil, err
	}
	h := &host{
		store: st, mark: markOf(dir), clock: cfg.Clock, log: cfg.Logger, version: cfg.Version, protocol: cfg.Protocol,
		boxes: make(map[string]*box, len(records)), ended: make(chan struct{}),
	}
	if err := h.equip(ctx, key, cfg, records); err != nil {
		h.close()
		return nil, err
	}
	h.recover(records)
	return h, nil
}

// equip makes what the sandboxes are run with. After an error close gives up what was made.
func (h *host) equip(ctx context.Context, key string, cfg HostConfig, records map[string]record) (err error) {
	h.hides = hideProcesses()
	if h.spawner, err = spawn.New(spawn.Config{Reap: true, Logger: cfg.Logger}); err != nil {
		return err
	}
	if err := h.secure(ctx, records); err != nil {
		return err
	}
	h.server = runner.New(runner.Config{
		Spawner: h.spawner, Token: key, MaxBody: wire.MaxBody, MaxFile: cfg.MaxFile, Clock: cfg.Clock, Logger: cfg.Logger, Version: cfg.Version,
		Protocol: cfg.Protocol,
	})
	return nil
}

// secure claims the uids of the sandboxes, kills what a former host left behind, and finds the way that the uids have to their
// homes.
func (h *host) secure(ctx context.Context, records map[string]record) (err error) {
	h.homes = h.store.dir
	if h.spawner.Abilities().UIDs {
		if h.uids, err = claimUIDs(h.mark, records); err != nil {
			return err
		}
	}
	if err := killStrays(ctx, h.log, h.mark, h.uids.owned(records)); err != nil {
		return err
	}
	if h.uids != nil {
		h.homes, h.unmount, err = reach(h.store.dir, h.mark)
	}
	return err
}

// recover takes over what load found: all of it stopped, since what a former host ran is dead. A destroy that had begun is
// finished; what cannot be deleted stays listed, so that it can be tried again.
func (h *host) recover(records map[string]record) {
	for id, rec := range records {
		b := newBox(rec.meta)
		b.state = stopped
		switch {
		case rec.err != nil:
			b.meta.ID, b.state, b.err = id, broken, rec.err
			h.log.Error("sandbox cannot be read; its directory is kept", zap.String("id", id), zap.Error(rec.err))
		case rec.doomed:
			b.state = doomed
			if err := h.store.remove(id); err == nil {
				h.log.Info("finished a destroy", zap.String("id", id))
				h.release(rec.meta.UID)
				continue
			} else {
				h.log.Error("sandbox cannot be deleted", zap.String("id", id), zap.Error(err))
			}
		}
		h.boxes[id] = b
	}
}

// roomy gives a connection room for what a busy stream writes at once, so that it and its reader take fewer turns. The kernel may give
// less.
func roomy(ctx context.Context, c net.Conn) context.Context {
	if u, ok := c.(*net.UnixConn); ok {
		_ = u.SetWriteBuffer(sendBuffer)
	}
	return ctx
}

// serve answers until ctx ends or a down was asked for.
func (h *host) serve(ctx context.Context, dir, key string) error {
	ln, err := listen(dir)
	if err != nil {
		return err
	}
	srv := &http.Server{
		Handler:           h.routes(key),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * idleConns,
		ConnContext:       roomy,
		ErrorLog:          zap.NewStdLog(h.log),
	}
	known := len(h.boxes) // before requests change them
	var serveErr error
	served := make(chan struct{}) // closed when the line below has ended, which finish brings about
	go func() { defer close(served); serveErr = srv.Serve(ln) }()
	var tending sync.WaitGroup
	tending.Go(func() { h.tend(filepath.Join(dir, logFile), served) })
	defer tending.Wait()
	h.log.Info("host runner serves", zap.Int("pid", os.Getpid()), zap.String("version", h.version),
		zap.Int("sandboxes", known), zap.Strings("confinement", h.confinement()))
	select {
	case <-h.ended:
	case <-ctx.Done():
		_, err = h.down(context.WithoutCancel(ctx))
	case <-served:
		_, err = h.down(context.WithoutCancel(ctx))
	}
	err = errors.Join(err, finish(srv))
	<-served
	_ = os.Remove(filepath.Join(dir, socketFile)) // the next host would do it, and may never come
	if !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

// finish lets answers that are under way leave, and cuts off what does not end.
func finish(srv *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		return srv.Close()
	}
	return nil
}

// close gives up all that newHost took; the sandboxes were stopped before.
func (h *host) close() {
	if h.server != nil {
		h.server.Close()
	}
	if h.spawner != nil {
		h.spawner.Close()
	}
	if h.unmount != nil {
		h.unmount()
	}
	h.uids.close()
}
