package memory

import (
	"context"
	"fmt"
	"sync"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/backend"
)

// Config says how large an Engine is, and what happens around its sandboxes. The zero Config is ready for use.
type Config struct {
	// Endpoint says where the runner of a sandbox listens; it may start one. It is called once per create, outside of all
	// locks; its error fails the create, which then leaves nothing behind. nil: network "unix", an address that nobody serves.
	Endpoint func(ctx context.Context, s backend.Sandbox) (backend.Endpoint, error)
	// Ended is told of each instance that has ended, before the call that ended it returns, outside of all locks. nil: nobody.
	Ended func(r backend.Ref)
	// Capacity is how many sandboxes may run at once, of all owners; one more is backend.ErrQuota. 0: any number; negative panics.
	Capacity int
	// Clock gives creation times and delays; nil: the real one.
	Clock clock.Clock
}

// Engine has the sandboxes of all owners. It is made by NewEngine, and the zero Engine is not usable. It is safe for concurrent
// use, starts no goroutine and keeps nothing on disk.
type Engine struct {
	cfg Config

	mu     sync.Mutex // guards the fields below and the boxes
	boxes  map[key]*box
	faults []*fault // newest last
	calls  map[string]int
	news   chan struct{} // closed by the next change
}

type key struct{ owner, id string }

// box is one sandbox. A box whose busy is not nil is in transition and belongs to the call that set it.
type box struct {
	sandbox backend.Sandbox
	files   map[string][]byte // the workspace
	busy    chan struct{}     // closed when the transition is over
}

// stopped returns a box that no longer runs, around the same workspace.
func (b *box) stopped() *box {
	s := b.sandbox
	s.Running, s.Endpoint = false, backend.Endpoint{}
	return &box{sandbox: s, files: b.files}
}

// NewEngine returns an Engine without sandboxes. It panics if the Capacity is negative.
func NewEngine(cfg Config) *Engine {
	if cfg.Capacity < 0 {
		panic(fmt.Sprintf("memory: negative Capacity %d", cfg.Capacity))
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.New()
	}
	if cfg.Endpoint == nil {
		cfg.Endpoint = nowhere
	}
	if cfg.Ended == nil {
		cfg.Ended = func(backend.Ref) {}
	}
	return &Engine{cfg: cfg, boxes: map[key]*box{}, calls: map[string]int{}, news: make(chan struct{})}
}

func nowhere(_ context.Context, s backend.Sandbox) (backend.Endpoint, error) {
	return backend.Endpoint{Network: "unix", Address: "/nowhere/" + s.ID + ".sock"}, nil
}

// Open returns a new handle for an owner.
func (e *Engine) Open(owner string) *Backend { return &Backend{e, owner} }

// Calls returns how often a call was made, over all handles: of "create", "list", "stop", "destroy", "mark" or "ping".
func (e *Engine) Calls(call string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls[call]
}

// begin puts a box for s in place, not running yet, or says why not.
func (e *Engine) begin(k key, s backend.Spec) (neu, old *box, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old = e.boxes[k]
	if err := e.admitLocked(old, s); err != nil {
		return nil, nil, err
	}
	now := e.cfg.Clock.Now()
	s.Env = nil
	neu = &box{
		sandbox: backend.Sandbox{Spec: s, Created: now, Renewed: now},
		files:   map[string][]byte{}, busy: make(chan struct{}),
	}
	if old != nil {
		neu.files = old.files
	}
	e.boxes[k] = neu
	return neu, old, nil
}

func (e *Engine) admitLocked(old *box, s backend.Spec) error {
	switch {
	case old == nil:
	case old.busy != nil:
		return fmt.Errorf("%w: %q is being changed", backend.ErrConflict, s.ID)
	case old.sandbox.Running:
		return fmt.Errorf("%w: %q runs as instance %q", backend.ErrConflict, s.ID, old.sandbox.Instance)
	case old.sandbox.Tenant != s.Tenant:
		return fmt.Errorf("%w: %q has the workspace of another tenant", backend.ErrConflict, s.ID)
	}
	if running := e.runningLocked(); e.cfg.Capacity > 0 && running >= e.cfg.Capacity {
		return fmt.Errorf("%w: %d of %d sandboxes run", backend.ErrQuota, running, e.cfg.Capacity)
	}
	return nil
}

func (e *Engine) runningLocked() (n int) {
	for _, b := range e.boxes {
		if b.sandbox.Running || b.busy != nil {
			n++
		}
	}
	return n
}

// claim waits for the end of a transition and begins one if there is an instance to end; a nil box says that there is none.
func (e *Engine) claim(ctx context.Context, k key, instance string, runningOnly bool) (*box, error) {
	for {
		box, busy := e.tryClaim(k, instance, runningOnly)
		if busy == nil {
			return box, nil
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, fmt.Errorf("memory: %q is being changed: %w", k.id, ctx.Err())
		}
	}
}

func (e *Engine) tryClaim(k key, instance string, runningOnly bool) (claimed *box, busy chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	box := e.boxes[k]
	if box == nil || box.sandbox.Instance != instance {
		return nil, nil
	}
	if box.busy != nil {
		return nil, box.busy
	}
	if runningOnly && !box.sandbox.Running {
		return nil, nil
	}
	box.busy = make(chan struct{})
	return box, nil
}

// settle ends the transition of was: after takes its place, or nothing does.
func (e *Engine) settle(k key, was, after *box) {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(was.busy)
	delete(e.boxes, k)
	if after != nil {
		e.boxes[k] = after
	}
	e.tellLocked()
}

// tellLocked wakes those who watch.
func (e *Engine) tellLocked() {
	close(e.news)
	e.news = make(chan struct{})
}

func (e *Engine) nextChange() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.news
}
