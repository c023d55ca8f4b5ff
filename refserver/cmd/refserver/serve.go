package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/term"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/bodylimit"
	"github.com/keepwell-go/keepwell/refserver"
	"github.com/keepwell-go/keepwell/refserver/binding"
	"github.com/keepwell-go/keepwell/refserver/internal/gather"
)

// drainTime is how long requests under way may take to finish once the server was told to end.
const drainTime = 10 * time.Second

// A connection may take headerTime to send the head of a request, and idleTime until it sends the next one.
const (
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
)

type serveCmd struct {
	Listen             string        `placeholder:"HOST:PORT" default:"127.0.0.1:8080" help:"Address to serve on; port 0 picks one. Default: ${default}."`
	Backend            string        `placeholder:"NAME" default:"local" enum:"local,docker" help:"What runs the sandboxes (${enum}); a flag of the other is refused, and its variable is not read. Default: ${default}."`
	NoAuth             bool          `help:"Ask for no token. Only on a loopback address, and only where no sandbox is hostile: they reach it too."`
	MaxSandboxes       int           `placeholder:"N" default:"256" help:"Sandboxes that may exist at once, those being created included. Default: ${default}."`
	MaxPerTenant       int           `placeholder:"N" default:"0" help:"The same for each tenant; 0, the default: no such limit."`
	TTLMax             time.Duration `placeholder:"DURATION" name:"ttl-max" default:"24h" help:"Longest lifetime of a sandbox, to which longer ones are cut, and that of one that names none. Default: ${default}."`
	IdleMax            time.Duration `placeholder:"DURATION" default:"30m" help:"The same for its idle timeout. Default: ${default}."`
	SweepEvery         time.Duration `placeholder:"DURATION" default:"60s" help:"Time between two sweeps. Default: ${default}."`
	MaxLinger          time.Duration `placeholder:"DURATION" default:"0" help:"Stop the sandboxes that this server created itself when its drain has gone on for longer; 0, the default: leave them to another server."`
	MaxBodyBytes       int64         `placeholder:"BYTES" default:"${max_body}" help:"Largest JSON request body. Default: ${default}."`
	MaxFileBytes       int64         `placeholder:"BYTES" default:"${max_file}" help:"Largest file that is written. Default: ${default}."`
	RequireConfinement bool          `backend:"local" help:"Local: refuse to start where the machine cannot confine sandboxes fully."`
	dockerFlags
	storeFlags
	Log string `placeholder:"FORM" default:"auto" enum:"auto,console,json" help:"Form of the log on stderr (${enum}); auto, the default, is console on a terminal."`
}

// Run serves until ctx ends.
func (c *serveCmd) Run(ctx context.Context, g *cli) error {
	if err := c.check(); err != nil {
		return usageError{err}
	}
	dir, err := stateDir(g.State)
	if err != nil {
		return err
	}
	log := newLogger(c.Log)
	defer func() { _ = log.Sync() }() // a terminal cannot be synced
	ln, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", c.Listen, err)
	}
	defer ln.Close()
	if c.NoAuth && !loopback(ln.Addr()) {
		return usageError{fmt.Errorf("--no-auth needs a loopback address, and --listen %s is none", c.Listen)}
	}
	if err := makeStateDir(dir); err != nil { // not before it is clear that the flags are good
		return err
	}
	if c.NoAuth {
		log.Warn("no token is asked for: whatever runs on this machine, sandboxes too, may create, enter and destroy sandboxes")
	}
	store, err := c.openStore(ctx, dir, log)
	if err != nil {
		return err
	}
	defer closeStore(store, log)
	be, err := c.engine(dir, log)
	if err != nil {
		return err
	}
	defer be.Close()
	srv, err := c.server(dir, be, store, log)
	if err != nil {
		return err
	}
	defer srv.Close()
	for _, sentence := range be.Confinement() {
		log.Info("confinement: " + sentence)
	}
	unlist, err := listAddress(dir, ln.Addr())
	if err != nil {
		return err
	}
	defer unlist()
	announce(dir, ln.Addr(), c.NoAuth)
	return c.serve(ctx, ln, srv, log)
}

// check refuses values that would make a server that cannot work.
func (c *serveCmd) check() error {
	host, _, err := net.SplitHostPort(c.Listen)
	switch {
	case err != nil:
		return fmt.Errorf("--listen %q: %w", c.Listen, err)
	case host == "":
		return fmt.Errorf("--listen %q: name the address, 127.0.0.1 for this machine alone or 0.0.0.0 for all", c.Listen)
	case c.MaxSandboxes < 1:
		return fmt.Errorf("--max-sandboxes is %d, must be at least 1", c.MaxSandboxes)
	case c.MaxPerTenant < 0:
		return fmt.Errorf("--max-per-tenant is %d, must not be negative", c.MaxPerTenant)
	case c.TTLMax <= 0 || c.IdleMax <= 0:
		return fmt.Errorf("--ttl-max is %s and --idle-max is %s, both must be positive", c.TTLMax, c.IdleMax)
	case c.SweepEvery < time.Second:
		return fmt.Errorf("--sweep-every is %s, must be at least 1s", c.SweepEvery)
	case c.MaxLinger < 0:
		return fmt.Errorf("--max-linger is %s, must not be negative", c.MaxLinger)
	case c.MaxBodyBytes < wire.MinBody:
		return fmt.Errorf("--max-body-bytes is %d, must be at least %d", c.MaxBodyBytes, wire.MinBody)
	case c.MaxFileBytes < 0:
		return fmt.Errorf("--max-file-bytes is %d, must not be negative", c.MaxFileBytes)
	}
	return c.storeFlags.check()
}

func (c *serveCmd) server(dir string, be engine, store binding.Store, log *zap.Logger) (*refserver.Server, error) {
	token, err := secret(dir, tokenFile)
	if err != nil {
		return nil, err
	}
	key, err := secret(dir, keyFile)
	if err != nil {
		return nil, err
	}
	return refserver.New(refserver.Config{
		Backend: be, BackendName: c.Backend, NoImages: c.Backend == backendLocal, Token: token, Key: []byte(key), NoAuth: c.NoAuth,
		MaxSandboxes: c.MaxSandboxes, MaxPerTenant: c.MaxPerTenant,
		TTLMax: c.TTLMax, IdleMax: c.IdleMax, SweepEvery: c.SweepEvery, MaxLinger: c.MaxLinger,
		MaxBody:  bodylimit.Clamp(log, "--max-body-bytes", c.MaxBodyBytes, wire.MaxBody),
		MaxFile:  bodylimit.Clamp(log, "--max-file-bytes", c.MaxFileBytes, wire.MaxFile),
		Bindings: c.ours(store, key), Confinement: be.Confinement(), Version: version(), Logger: log,
	})
}

// serve answers until ctx ends, then lets what is under way finish, and says what goes on without it.
func (c *serveCmd) serve(ctx context.Context, ln net.Listener, srv *refserver.Server, log *zap.Logger) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	swept := make(chan struct{}) // closed when the sweeps have ended
	go func() { defer close(swept); srv.Run(work) }()
	defer func() { cancel(); <-swept }()

	hs := &http.Server{
		Handler: srv.Handler(), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, ConnContext: gather.Context, ErrorLog: zap.NewStdLog(log),
	}
	failed := make(chan error, 1) // Serve's error, once
	go func() { failed <- hs.Serve(gather.Listener(ln)) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	grace, stop := context.WithTimeout(work, drainTime)
	defer stop()
	if err := hs.Shutdown(grace); errors.Is(err, context.DeadlineExceeded) {
		log.Warn("requests still under way were cut", zap.Duration("after", drainTime))
		_ = hs.Close() // the listener is closed, and the connections are to go
	}
	fmt.Fprintf(os.Stderr, "refserver: stopped; %s.\n", c.goesOn(srv.Len()))
	return nil
}

// goesOn says what becomes of the sandboxes that the server knew of. That it knew of none does not mean that there are none: the
// engine may not have answered.
func (c *serveCmd) goesOn(known int) string {
	if known == 0 {
		return "no sandbox is known to be running"
	}
	return fmt.Sprintf("still running: %s. Start `%s` again to use what runs, or end it with `%s`",
		sandboxes(known), c.line("refserver"), c.line("refserver down"))
}

// line returns a command for the sandboxes of this server.
func (c *serveCmd) line(command string) string {
	if c.Backend == backendDocker {
		command += " --backend docker"
		if c.Owner != "" {
			command += " --owner " + c.Owner
		}
	}
	return command
}

// announce tells people on stdout where the server is and how to use it.
func announce(dir string, addr net.Addr, noAuth bool) {
	base := "http://" + addr.String()
	fmt.Printf("listening on %s\n", base)
	auth := ""
	if !noAuth {
		path := filepath.Join(dir, tokenFile)
		fmt.Printf("token in %s\n", path)
		auth = fmt.Sprintf(` -H "Authorization: Bearer $(cat %s)"`, shellQuote(path))
	}
	fmt.Printf("try: curl%s -d '{}' %s/v1/sandboxes\n", auth, base)
}

// shellQuote returns s as one word of a shell inside double quotes' command substitution.
func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func loopback(addr net.Addr) bool {
	a, ok := addr.(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

// newLogger returns a logger to stderr of a form that --log names.
func newLogger(form string) *zap.Logger {
	cfg := zap.NewProductionConfig()
	cfg.DisableStacktrace = true
	if form == "console" || form == "auto" && term.IsTerminal(int(os.Stderr.Fd())) {
		cfg = zap.NewDevelopmentConfig()
		cfg.Level.SetLevel(zap.InfoLevel)
	}
	log, err := cfg.Build()
	if err != nil {
		return zap.NewNop() // only a broken sink, which stderr is not
	}
	return log
}
