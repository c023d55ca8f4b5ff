package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

const (
	startBudget   = 15 * time.Second      // until a new host answers
	silenceBudget = 3 * time.Second       // for a host that has the state directory to answer, when another could not have it
	startPoll     = 10 * time.Millisecond // between two looks at what is awaited
	maxLog        = 1 << 20               // bytes of log above which a new one is begun
	logTail       = 2 << 10               // bytes of it that an error shows
)

// ErrProtocol is returned when the host runner speaks a version of the protocol that this build does not.
var ErrProtocol = errors.New("local: host runner of another version")

// ErrConfinement is returned when RequireConfinement is set and the machine does not give it.
var ErrConfinement = errors.New("local: confinement is required")

// ensure returns when a host answers that this Backend may use; it starts one if none does.
func (b *Backend) ensure(ctx context.Context) error {
	got, err := b.raise(ctx)
	if err != nil {
		return err
	}
	if got.Protocol != protocol || got.Runner < wire.OldestProtocol || wire.Protocol < got.Runner {
		return fmt.Errorf("%w: the one of %s (process %d, version %s) speaks %d/%d, this build speaks %d/%d to %d: end it with `refserver down`, which stops its sandboxes",
			ErrProtocol, b.dir, got.PID, got.Version, got.Protocol, got.Runner, protocol, wire.OldestProtocol, wire.Protocol)
	}
	if b.cfg.RequireConfinement && len(got.Missing) > 0 {
		return fmt.Errorf("%w, and this machine lacks %s", ErrConfinement, strings.Join(got.Missing, ", "))
	}
	b.mu.Lock()
	b.info = got
	b.mu.Unlock()
	return nil
}

// raise returns what the host says of itself, having started it if it did not answer. Of several processes that find none
// answering, one starts it.
func (b *Backend) raise(ctx context.Context) (info, error) {
	ctx, cancel := b.cfg.Clock.WithTimeout(ctx, startBudget)
	defer cancel()
	got, err := b.ping(ctx)
	if !unreached(err) {
		return got, err
	}
	select {
	case b.start <- struct{}{}:
		defer func() { <-b.start }()
	case <-ctx.Done():
		return info{}, fmt.Errorf("local: waiting for the host runner: %w", ctx.Err())
	}
	lock, err := b.await(ctx, startFile)
	if err != nil {
		return info{}, err
	}
	defer lock.Close()
	if got, err := b.ping(ctx); !unreached(err) {
		return got, err
	}
	return b.launch(ctx)
}

// await takes a lock of the state directory as soon as it is free.
func (b *Backend) await(ctx context.Context, name string) (*os.File, error) {
	for {
		f, err := lockNow(filepath.Join(b.dir, name))
		if !errors.Is(err, errLocked) {
			return f, err
		}
		if !b.pause(ctx) {
			return nil, fmt.Errorf("local: %s is held by another process: %w", filepath.Join(b.dir, name), ctx.Err())
		}
	}
}

// pause waits a little; false when ctx has ended.
func (b *Backend) pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-b.cfg.Clock.After(startPoll):
		return true
	}
}

// launch starts a host and waits until one answers. The one that answers may be another, which had not got so far.
func (b *Backend) launch(ctx context.Context) (info, error) {
	b.collect()
	began := b.cfg.Clock.Now()
	if err := b.spawn(); err != nil {
		return info{}, err
	}
	var ended time.Time
	for {
		got, err := b.ping(ctx)
		if err == nil {
			b.cfg.Logger.Info("started a host runner", zap.Int("pid", got.PID), zap.String("state", b.dir), zap.Duration("took", b.cfg.Clock.Since(began)))
			return got, nil
		}
		if ctx.Err() == nil && !unreached(err) {
			return info{}, err
		}
		if ended.IsZero() && b.collect() {
			ended = b.cfg.Clock.Now()
		}
		if !ended.IsZero() {
			if err := b.failed(b.cfg.Clock.Since(ended)); err != nil {
				return info{}, err
			}
		}
		if !b.pause(ctx) {
			return info{}, fmt.Errorf("local: the host runner did not answer within %s: %w; %s", startBudget, ctx.Err(), b.tail())
		}
	}
}

// failed says why no host will answer any more, when the one that was started ended some time ago: there is none, or the one
// that has the state directory stays silent.
func (b *Backend) failed(ago time.Duration) error {
	holder := b.holder()
	switch {
	case holder == "":
		return fmt.Errorf("local: the host runner ended as soon as it was started; %s", b.tail())
	case ago < silenceBudget:
		return nil
	}
	return fmt.Errorf("local: process %s holds %s and does not answer: end it and try again", holder, b.dir)
}

// spawn starts a process that outlives this one and shares nothing with it: no session, no terminal, no environment beyond
// what every program needs.
func (b *Backend) spawn() error {
	argv, err := b.command()
	if err != nil {
		return err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("local: %w", err)
	}
	defer null.Close()
	out, err := b.openLog()
	if err != nil {
		return err
	}
	defer out.Close()
	attr := &os.ProcAttr{Dir: "/", Env: scrub(os.Environ()), Files: []*os.File{null, out, out}, Sys: detached(true)}
	p, err := os.StartProcess(argv[0], argv, attr)
	if errors.Is(err, os.ErrPermission) {
		attr.Sys = detached(false)
		p, err = os.StartProcess(argv[0], argv, attr)
	}
	if err != nil {
		return fmt.Errorf("local: start the host runner: %w", err)
	}
	b.mu.Lock()
	b.child = p.Pid
	b.mu.Unlock()
	return p.Release()
}

func (b *Backend) command() ([]string, error) {
	if len(b.cfg.Command) > 0 {
		return b.cfg.Command, nil
	}
	program, err := ownProgram()
	return append([]string{program}, hostArgs(b.dir)...), err
}

// hostArgs are the arguments with which a program is its own host runner.
func hostArgs(dir string) []string { return []string{"runner", "--host", dir} }

// scrub keeps of an environment what a program needs to run, and nothing that could be a secret.
func scrub(environ []string) []string {
	var out []string
	for _, name := range []string{"PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "GOCOVERDIR", "GOTRACEBACK", "GORACE"} {
		for _, kv := range environ {
			if strings.HasPrefix(kv, name+"=") {
				out = append(out, kv)
			}
		}
	}
	return out
}

// collect waits for a started host that has ended, so that no zombie stays; it says whether it has.
func (b *Backend) collect() (ended bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.child == 0 {
		return true
	}
	got, err := syscall.Wait4(b.child, nil, syscall.WNOHANG, nil) // does not block
	if got == b.child || errors.Is(err, syscall.ECHILD) {
		b.child = 0
		return true
	}
	return false
}

func (b *Backend) logPath() string { return filepath.Join(b.dir, logFile) }

func (b *Backend) openLog() (*os.File, error) {
	if fi, err := os.Stat(b.logPath()); err == nil && fi.Size() > maxLog {
		_ = os.Rename(b.logPath(), b.logPath()+".old") // the log goes on in the old file if it fails
	}
	f, err := os.OpenFile(b.logPath(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	return f, nil
}

// tail tells the last lines of the host's log.
func (b *Backend) tail() string {
	raw, err := b.readTail()
	if err != nil {
		return "its log cannot be read: " + err.Error()
	}
	return fmt.Sprintf("its log %s ends with:\n%s", b.logPath(), strings.TrimSpace(string(raw)))
}

func (b *Backend) readTail() ([]byte, error) {
	f, err := os.Open(b.logPath())
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	start := max(0, fi.Size()-logTail)
	return io.ReadAll(io.NewSectionReader(f, start, logTail))
}

// down ends the host, of whatever version, and returns when it has let go of the state directory.
func (b *Backend) down(ctx context.Context) (int, error) {
	host, err := b.raise(ctx)
	if err != nil {
		return 0, err
	}
	var got downAnswer
	if err := b.ask(ctx, http.MethodPost, downPath, nil, &got); err != nil {
		return 0, err
	}
	for b.holder() == strconv.Itoa(host.PID) {
		if !b.pause(ctx) {
			return got.Stopped, fmt.Errorf("local: the host runner, process %d, stopped its sandboxes and does not end: %w", host.PID, ctx.Err())
		}
	}
	b.collect()
	return got.Stopped, nil
}

// holder returns the number of the process that has the state directory, or "". Another server may have started a next host.
func (b *Backend) holder() string {
	lock, err := lockNow(filepath.Join(b.dir, lockFile))
	if err == nil {
		_ = lock.Close()
		return ""
	}
	pid, err := os.ReadFile(filepath.Join(b.dir, lockFile))
	if err != nil {
		return ""
	}
	return string(pid)
}

var _ interface {
	backend.Backend
	backend.Marker
} = (*Backend)(nil)
