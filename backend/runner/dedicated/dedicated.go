// Package dedicated is the runner as the one program of a container or pod: it serves a single sandbox, and as process 1 it reaps.
//
// It prevents the fault of a secret in plain view: the token comes from a file or from a variable that is gone from the environment,
// as the kernel shows it too, before the first command of the sandbox can look.
package dedicated

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend/runner"
	"github.com/keepwell-go/keepwell/backend/runner/spawn"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// TokenVariable is the environment variable that may carry the token.
const TokenVariable = "KEEPWELL_RUNNER_TOKEN"

// farewell bounds how long clients may take to read how their streams ended.
const farewell = 3 * time.Second

// headerTimeout bounds how long a client may take to say what it wants.
const headerTimeout = 10 * time.Second

// Exit codes of Run.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// options are what the command line says.
type options struct {
	listen    string
	id        string
	home      string
	tokenFile string
	passEnv   bool
	protocol  int
	version   string
}

// Run serves one sandbox until ctx ends, and returns the exit code of the program: 0 after ctx, 1 if it could not serve, 2 if args make
// no sense. It prints one line on stdout once it listens: "listening on " and the address.
//
// Run is for a program that does nothing else: it adopts and reaps every child of this process, and may execute the program anew to
// be rid of the token in its environment.
func Run(ctx context.Context, args []string, version string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			_, _ = fmt.Fprintln(stderr, err)
		}
		return exitUsage
	}
	o.version = version
	if err := o.run(ctx, stdout, stderr); err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return exitFailed
	}
	return exitDone
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	set := flag.NewFlagSet("runner", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&o.listen, "listen", "", "address to listen on: host:port, or the path of a unix socket")
	set.StringVar(&o.id, "id", "", "id of the sandbox")
	set.StringVar(&o.home, "home", "/workspace", "workspace of the sandbox")
	set.StringVar(&o.tokenFile, "token-file", "", "file with the token that requests must bear; otherwise the variable "+TokenVariable)
	set.BoolVar(&o.passEnv, "pass-env", false, "hand the environment of this program, without the token, on to every process: it is the container's")
	set.IntVar(&o.protocol, "protocol", wire.Protocol, "version of the protocol to speak; an older one is for tests")
	if err := set.Parse(args); err != nil {
		return o, err
	}
	switch {
	case set.NArg() > 0:
		return o, fmt.Errorf("runner: unknown argument %q", set.Arg(0))
	case o.listen == "":
		return o, errors.New("runner: -listen is missing")
	case o.id == "":
		return o, errors.New("runner: -id is missing")
	case !filepath.IsAbs(o.home):
		return o, fmt.Errorf("runner: -home %q is not absolute", o.home)
	case o.protocol < wire.OldestProtocol || wire.Protocol < o.protocol:
		return o, fmt.Errorf("runner: -protocol %d is not among %d to %d", o.protocol, wire.OldestProtocol, wire.Protocol)
	}
	return o, nil
}

func (o options) unix() bool {
	return strings.HasPrefix(o.listen, "/") || strings.HasPrefix(o.listen, "./")
}

func (o options) run(ctx context.Context, stdout, stderr io.Writer) error {
	token, err := o.token()
	if err != nil {
		return err
	}
	if token == "" && !o.unix() {
		return fmt.Errorf("runner: a token is needed on %s: set %s or -token-file", o.listen, TokenVariable)
	}
	log := zap.New(newCore(stderr))
	spawner, err := spawn.New(spawn.Config{Reap: true, Logger: log})
	if err != nil {
		return fmt.Errorf("runner: %w", err)
	}
	defer spawner.Close()
	tmp, cell, err := o.confine(spawner)
	if err != nil {
		return err
	}
	defer cell.Close()
	server := runner.New(runner.Config{
		Spawner: spawner, Token: token, Logger: log, Version: o.version, Protocol: o.protocol, Confinement: cell.Abilities().Sentences(),
	})
	defer server.Close()
	if err := server.Add(runner.Sandbox{ID: o.id, Home: o.home, Env: o.env(tmp), Confinement: cell}); err != nil {
		return err
	}
	l, err := o.open()
	if err != nil {
		return fmt.Errorf("runner: %w", err)
	}
	_, _ = fmt.Fprintln(stdout, "listening on", l.Addr())
	return serve(ctx, l, server)
}

// env returns what every process finds in its environment. By now that of this program is without the token.
func (o options) env(tmp string) map[string]string {
	env := map[string]string{}
	if o.passEnv {
		for _, entry := range os.Environ() {
			if name, value, ok := strings.Cut(entry, "="); ok && name != TokenVariable {
				env[name] = value
			}
		}
	}
	if env["TMPDIR"] == "" {
		env["TMPDIR"] = tmp
	}
	return env
}

// confine prepares the sandbox. The container around it is its boundary: which files may be written and which ports bound is for
// whoever made that to say.
func (o options) confine(spawner *spawn.Spawner) (tmp string, cell *spawn.Confinement, err error) {
	tmp, uid, gid, err := o.makeTmp()
	if err != nil {
		return "", nil, fmt.Errorf("runner: home: %w", err)
	}
	cell, err = spawner.Confine(spawn.Limits{Name: o.id, Home: o.home, Open: true, UID: uid, GID: gid})
	if err != nil {
		return "", nil, fmt.Errorf("runner: %w", err)
	}
	return tmp, cell, nil
}

// makeTmp makes the directory for temporary files, which lies in the workspace, and says who is to own both: nobody else than this
// process, unless it is root.
func (o options) makeTmp() (tmp string, uid, gid uint32, err error) {
	info, err := os.Lstat(o.home)
	if err != nil {
		return "", 0, 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if ok && os.Geteuid() == 0 {
		uid, gid = st.Uid, st.Gid
	}
	tmp = filepath.Join(o.home, "tmp")
	err = os.Mkdir(tmp, 0o700)
	switch {
	case errors.Is(err, fs.ErrExist):
		err = nil
	case err == nil && uid != 0:
		err = os.Lchown(tmp, int(uid), int(gid))
	}
	return tmp, uid, gid, err
}

// token returns the token, after which nothing of it is left in the environment.
func (o options) token() (string, error) {
	if o.tokenFile != "" {
		b, err := os.ReadFile(o.tokenFile)
		if err != nil {
			return "", fmt.Errorf("runner: read token: %w", err)
		}
		token := strings.TrimSpace(string(b))
		if token == "" {
			return "", fmt.Errorf("runner: token file %s is empty", o.tokenFile)
		}
		return token, nil
	}
	return takeToken()
}

// open listens. A unix socket is for its owner alone, and one that a dead runner has left behind is replaced.
func (o options) open() (net.Listener, error) {
	if !o.unix() {
		return net.Listen("tcp", o.listen)
	}
	if info, err := os.Lstat(o.listen); err == nil && info.Mode().Type() == fs.ModeSocket {
		if err := os.Remove(o.listen); err != nil {
			return nil, err
		}
	}
	return listenPrivately(o.listen)
}

func serve(ctx context.Context, l net.Listener, server *runner.Server) error {
	front := &http.Server{Handler: server.Handler(), ReadHeaderTimeout: headerTimeout}
	ended := make(chan struct{}) // closed when ctx has ended and all clients were told
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		server.Close() // ends the streams
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer cancel()
		if front.Shutdown(grace) != nil {
			_ = front.Close()
		}
	})
	defer stop()
	if err := front.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("runner: %w", err)
	}
	<-ended
	return nil
}
