// Package runner serves the inside of sandboxes over HTTP: commands, processes, their output, and files.
//
// It prevents the faults of servers that start commands for others: a kill that ends the shell and misses what the shell has started,
// a signal to a number that belongs to another process by now, an exit code stolen by somebody else's wait, output lost because the
// client that asked for it hung up, and one slow client that holds up everything. A command here is a process with an opaque id;
// whoever started it may leave, and whoever comes later finds its output and its exit.
//
// One Server holds one sandbox, as the first program of a container, or many, on a machine of its own. It treats every path and
// every process of a sandbox as hostile: processes are started and killed through package spawn, paths go through [os.Root], and
// every input has an end. The shapes of all messages are in package wire.
package runner

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend/runner/spawn"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/bodylimit"
)

// closeBudget bounds Close.
const closeBudget = 10 * time.Second

// Config holds the settings of a Server. Only Spawner is needed, and that only for commands: without it files are served alone.
type Config struct {
	Spawner *spawn.Spawner // starts and kills; it outlives the Server
	Token   string         // what a request must bear; "" lets everyone in, for sockets that guard themselves
	MaxBody int64          // bytes of a JSON body; 0: wire.MaxBody
	MaxFile int64          // bytes of a written file; 0: wire.MaxFile
	Clock   clock.Clock    // nil: the real one
	Logger  *zap.Logger    // nil: silent
	Version string         // of the build, for GET /health
	// Protocol is the version to speak, for tests of what talks to older runners; 0: wire.Protocol.
	Protocol int
	// Confinement is what GET /health says of it, one sentence each; nil: what the Spawner can do.
	Confinement []string
}

// Sandbox is what a Server is told of a sandbox.
type Sandbox struct {
	ID string
	// Home is the workspace, an absolute path to a directory that exists. Files that are written belong to its owner.
	Home string
	// Env is what every process finds in its environment, over a small base of PATH, HOME and the like. The environment of the
	// Server itself reaches no process.
	Env map[string]string
	// Confinement is what processes start in. It stays the caller's, who closes it after Remove. Nil makes one with no limits
	// but the workspace, which Remove closes.
	Confinement *spawn.Confinement
}

// Server serves sandboxes. It is made by New and safe for concurrent use. An idle sandbox costs no goroutine and no open file until
// its workspace is first asked for, and one open file from then on.
type Server struct {
	cfg    Config
	token  [sha256.Size]byte // of Config.Token
	json   *bodylimit.Limiter
	file   *bodylimit.Limiter
	legacy *minter                     // of a runner of protocol 1; nil for a current one
	routes map[string]map[string]route // by shape of the path, then by method
	bufs   sync.Pool                   // of *buffers

	mu        sync.Mutex // guards the fields below
	null      *os.File
	sandboxes map[string]*sandbox
	closed    bool
}

// New returns a Server without sandboxes. It panics if a limit is negative or the protocol is none that is spoken here.
func New(cfg Config) *Server {
	if cfg.MaxBody < 0 || cfg.MaxFile < 0 {
		panic("runner: negative limit")
	}
	if cfg.Protocol == 0 {
		cfg.Protocol = wire.Protocol
	}
	if cfg.Protocol < wire.OldestProtocol || wire.Protocol < cfg.Protocol {
		panic(fmt.Sprintf("runner: protocol %d is not among %d to %d", cfg.Protocol, wire.OldestProtocol, wire.Protocol))
	}
	if cfg.MaxBody == 0 {
		cfg.MaxBody = wire.MaxBody
	}
	if cfg.MaxFile == 0 {
		cfg.MaxFile = wire.MaxFile
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.New()
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	s := &Server{
		cfg:       cfg,
		token:     sha256.Sum256([]byte(cfg.Token)),
		json:      &bodylimit.Limiter{Max: cfg.MaxBody}, // without a Logger: a client's mistakes are told to the client
		file:      &bodylimit.Limiter{Max: cfg.MaxFile},
		sandboxes: map[string]*sandbox{},
	}
	s.cfg.Token = "" // its hash is enough
	if cfg.Protocol == legacyProtocol {
		s.legacy = &minter{clock: cfg.Clock}
	}
	s.routes = s.table()
	s.bufs.New = func() any { return newBuffers() }
	return s
}

// Add makes a sandbox servable and starts its idle clock. It fails if the id is taken, the home is no directory or the Server is closed.
func (s *Server) Add(sb Sandbox) error {
	if sb.ID == "" {
		return errors.New("runner: add: empty sandbox id")
	}
	files, err := newWorkspace(sb.Home, s.cfg.MaxFile)
	if err != nil {
		return fmt.Errorf("runner: add %s: %w", sb.ID, err)
	}
	made, err := s.confine(sb, files)
	if err != nil {
		return fmt.Errorf("runner: add %s: %w", sb.ID, err)
	}
	if err := s.register(newSandbox(s, sb, files, made)); err != nil {
		if made != nil {
			made.Close()
		}
		return fmt.Errorf("runner: add %s: %w", sb.ID, err)
	}
	return nil
}

// confine makes the confinement of a sandbox that brings none. As root its processes run as the owner of the workspace.
func (s *Server) confine(sb Sandbox, files *workspace) (*spawn.Confinement, error) {
	if sb.Confinement != nil || s.cfg.Spawner == nil {
		return nil, nil
	}
	limits := spawn.Limits{Name: sb.ID, Home: sb.Home}
	if files.chown {
		limits.UID, limits.GID = uint32(files.uid), uint32(files.gid)
	}
	return s.cfg.Spawner.Confine(limits)
}

func (s *Server) register(sb *sandbox) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fs.ErrClosed
	}
	if _, taken := s.sandboxes[sb.id]; taken {
		return fs.ErrExist
	}
	if s.null == nil {
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		s.null = null
	}
	sb.null = s.null
	s.sandboxes[sb.id] = sb
	return nil
}

// Remove refuses new work of a sandbox, kills everything inside, ends every stream with its last event, and forgets the sandbox. To
// remove what is not there is a success. After an error something inside may live: the sandbox goes on refusing work, and Remove can
// be called again.
func (s *Server) Remove(ctx context.Context, id string) error {
	sb := s.sandbox(id)
	if sb == nil {
		return nil
	}
	if err := sb.remove(ctx); err != nil {
		return fmt.Errorf("runner: remove %s: %w", id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sandboxes[id] == sb {
		delete(s.sandboxes, id)
	}
	return nil
}

// Activity returns what is going on in a sandbox; false if there is no such sandbox.
func (s *Server) Activity(id string) (wire.Activity, bool) {
	sb := s.sandbox(id)
	if sb == nil {
		return wire.Activity{}, false
	}
	return sb.activity(), true
}

// Handler returns the HTTP interface: GET /health, which is open, and everything below /v1/sandboxes/{id}/. What it serves streams
// and uploads, so the http.Server around it should bound the reading of headers only.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// Close removes every sandbox, which kills everything inside, and ends every stream. It takes at most ten seconds, and what could
// not be killed by then is logged. It may be called twice.
func (s *Server) Close() {
	ctx, cancel := s.cfg.Clock.WithTimeout(context.Background(), closeBudget)
	defer cancel()
	var wg sync.WaitGroup
	for _, sb := range s.shut() {
		wg.Go(func() {
			if err := s.Remove(ctx, sb.id); err != nil {
				s.cfg.Logger.Error("sandbox not removed at close", zap.String("sandbox", sb.id), zap.Error(err))
				sb.cancel()
			}
		})
	}
	wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.null != nil && len(s.sandboxes) == 0 {
		_ = s.null.Close()
		s.null = nil
	}
}

func (s *Server) shut() []*sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	all := make([]*sandbox, 0, len(s.sandboxes))
	for _, sb := range s.sandboxes {
		all = append(all, sb)
	}
	return all
}

func (s *Server) sandbox(id string) *sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sandboxes[id]
}
