package refserver

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/bodylimit"
	"github.com/keepwell-go/keepwell/probe"
	"github.com/keepwell-go/keepwell/quota"
	"github.com/keepwell-go/keepwell/refserver/binding"
	"github.com/keepwell-go/keepwell/registry"
	"github.com/keepwell-go/keepwell/sweep"
)

// Names of the limits, as a refusal names them.
const (
	limitHost   = "host"
	limitTenant = "tenant"
)

// retainEvery is the time between two removals of old rows from the binding store.
const retainEvery = 10 * time.Minute

// refusalTime is how long a client whose body was refused is listened to, so that a slow one comes to read why.
const refusalTime = time.Second

// Server serves the sandboxes of one backend. It is made by New and safe for concurrent use.
type Server struct {
	cfg      Config
	log      *zap.Logger
	be       backend.Backend // bounded by cfg.Budgets
	reg      *registry.Registry[string, *box]
	led      *ledger
	loop     *sweep.Loop
	rows     *sweep.Loop // retention of bindings
	bindings binding.Store
	health   *probe.Probe[struct{}] // of the backend
	store    *probe.Probe[struct{}] // of bindings
	runners  *runners
	auth     *auth
	routes   []route
	json     *bodylimit.Limiter
	files    *bodylimit.Limiter
	doubts   doubts
	moving   moving
	silents  refs // run and could not be registered, since their runners did not answer
	created  refs // by this Server, and not known to have ended
	latch    latch
	joins    singleflight.Group // teardowns under way, by verb and id
	tasks    tasks              // what goes on when its caller has left
	notes    errgroup.Group     // of ends of processes; each is one of tasks, too
	buffers  relayBuffers
	counted  atomic.Bool // the quota counts what there was before the Server
	moved    atomic.Bool // a list has dropped what runs elsewhere by now, and the next one registers it

	uncounted time.Time // when an attempt at counted failed last; of who makes the next one
}

// New returns a Server, which starts nothing until Run is called or a request comes in. A value of cfg that no server can work
// with is refused by its name and the reason.
func New(cfg Config) (*Server, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	s := &Server{
		cfg:      cfg,
		log:      cfg.Logger,
		be:       cfg.Budgets.Bound(cfg.Backend),
		auth:     newAuth(cfg),
		runners:  newRunners(cfg.Clock),
		json:     &bodylimit.Limiter{Max: cfg.MaxBody, Drain: refusalTime, Strict: true, Logger: cfg.Logger},
		files:    &bodylimit.Limiter{Max: cfg.MaxFile, Drain: refusalTime, Logger: cfg.Logger},
		routes:   newRoutes(),
		doubts:   doubts{clock: cfg.Clock},
		latch:    latch{clock: cfg.Clock},
		bindings: bindingsOf(cfg),
	}
	s.notes.SetLimit(maxNotes)
	s.led = quota.New[string](quota.Config{Clock: cfg.Clock, Logger: cfg.Logger}, limitsOf(cfg)...)
	s.reg = registry.New(s.list, registry.Config[string, *box]{
		Adopt: s.adopt, Observe: s.observe, Draining: s.latch.draining, Clock: cfg.Clock, Logger: cfg.Logger,
		Grace: -1, // a backend's list is true by its contract, also about what is young
	})
	s.loop = sweep.New(s.pass, sweep.Config{Every: cfg.SweepEvery, Clock: cfg.Clock, Logger: cfg.Logger})
	s.rows = sweep.New(s.retain, sweep.Config{Every: retainEvery, Clock: cfg.Clock, Logger: cfg.Logger})
	s.health = probe.New(s.ping, probe.Config{Clock: cfg.Clock, Logger: cfg.Logger})
	s.store = probe.New(s.pingStore, probe.Config{Clock: cfg.Clock, Logger: cfg.Logger})
	return s, nil
}

func limitsOf(cfg Config) []quota.Limit[claim] {
	limits := []quota.Limit[claim]{{Name: limitHost, Max: int64(cfg.MaxSandboxes)}}
	if cfg.MaxPerTenant > 0 {
		limits = append(limits, quota.Limit[claim]{
			Name: limitTenant, Max: int64(cfg.MaxPerTenant), Key: func(c claim) string { return c.tenant },
		})
	}
	return limits
}

// Run sweeps, at once and then each period, which is also how the Server learns what the backend has; a [backend.Watcher] lets it
// learn sooner. It returns when ctx has ended or the Server is closed, after the last sweep has. A backend that does not answer is no
// reason to return: the next sweep asks again. It is called once.
func (s *Server) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var heeding, wg sync.WaitGroup
	heeding.Go(func() { s.heed(ctx) })
	defer heeding.Wait()
	defer cancel() // once the loops have ended, which Close ends too
	defer wg.Wait()
	for _, loop := range []*sweep.Loop{s.loop, s.rows} {
		loop.Nudge()
		wg.Go(func() { _ = loop.Run(ctx) }) // says only why it ended
	}
}

// Handler returns the HTTP API.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.handle) }

// Len returns how many running sandboxes the Server knows of.
func (s *Server) Len() int { return s.reg.Stats().Entries }

// Close ends sweeps and lists, lets creates and teardowns that have begun come to their end, and waits for all of them. The
// sandboxes live on. It may be called twice.
func (s *Server) Close() {
	s.loop.Close()
	s.rows.Close()
	s.tasks.close()
	s.reg.Close()
	s.health.Close()
	s.store.Close()
	s.runners.close()
}

func (s *Server) pingStore(ctx context.Context) (struct{}, error) {
	return struct{}{}, s.bindings.Ping(ctx)
}

func (s *Server) ping(ctx context.Context) (struct{}, error) { return struct{}{}, s.be.Ping(ctx) }
