package local

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/runner"
	"github.com/keepwell-go/keepwell/backend/runner/spawn"
)

// killBudget bounds how long a stop waits for the processes of a sandbox to end.
const killBudget = 30 * time.Second

// openFiles is how many files one process of a sandbox may have open: with the number of processes, a bound on the machine's table.
const openFiles = 4096

// host holds the sandboxes of one state directory. What is running is known here alone; the rest is on the disk.
type host struct {
	store    *store
	mark     string // tells this state directory from others on the machine
	homes    string // the store's directory as the sandboxes see it
	unmount  func() // nil: nothing was mounted
	hides    bool   // sandboxes do not see each other's processes
	uids     *uidPool
	spawner  *spawn.Spawner
	server   *runner.Server
	clock    clock.Clock
	log      *zap.Logger
	version  string
	protocol int           // of the runner
	ended    chan struct{} // closed when a down has stopped everything

	mu      sync.Mutex // guards the fields below, and the fields of each box but turn
	boxes   map[string]*box
	closing bool // no creates from here on
	over    bool // ended is closed
}

// state is where a sandbox is between its first directory and its last.
type state uint8

const (
	making  state = iota // being created; nobody has been told of it
	running              // has a cell
	stopped              // a directory and a label
	doomed               // a destroy has begun and the directory is still there
	broken               // there is a directory whose label cannot be read
	gone
)

// box is what the host knows of one id. Who has its turn changes it; others read it under host.mu.
type box struct {
	turn  chan struct{} // capacity 1: full while somebody changes the sandbox
	meta  meta
	state state
	cell  *spawn.Confinement // while running
	err   error              // while broken
}

func newBox(m meta) *box { return &box{turn: make(chan struct{}, 1), meta: m} }

// claim gives the caller the turn of an id that may be created or resumed; everything else is a conflict. It does not wait.
func (h *host) claim(m meta) (*box, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return nil, fmt.Errorf("the host runner is going down: %w", backend.ErrUnavailable)
	}
	b, ok := h.boxes[m.ID]
	if !ok {
		b = newBox(m)
		h.boxes[m.ID] = b
	}
	select {
	case b.turn <- struct{}{}:
	default:
		return nil, fmt.Errorf("sandbox %s is being created, stopped or destroyed: %w", m.ID, backend.ErrConflict)
	}
	if err := b.refuses(m); err != nil {
		<-b.turn
		return nil, err
	}
	return b, nil
}

// refuses says why a create may not resume b.
func (b *box) refuses(m meta) error {
	switch {
	case b.state == running:
		return fmt.Errorf("sandbox %s is running: %w", m.ID, backend.ErrConflict)
	case b.state == doomed:
		return fmt.Errorf("sandbox %s is half destroyed, destroy it again: %w", m.ID, backend.ErrConflict)
	case b.state == broken:
		return fmt.Errorf("sandbox %s exists and cannot be read: %w: %w", m.ID, b.err, backend.ErrConflict)
	case b.meta.Tenant != m.Tenant:
		return fmt.Errorf("sandbox %s is another tenant's: %w", m.ID, backend.ErrConflict)
	}
	return nil
}

// take gives the caller the turn of the instance that r names, waiting for it until ctx ends; nil when that is not there. A
// sandbox that cannot be read may be that instance.
func (h *host) take(ctx context.Context, r backend.Ref) (*box, error) {
	h.mu.Lock()
	b := h.boxes[r.ID]
	h.mu.Unlock()
	if b == nil {
		return nil, nil
	}
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("sandbox %s: waiting for what changes it: %w", r.ID, ctx.Err())
	}
	if b.state == broken {
		<-b.turn
		return nil, fmt.Errorf("sandbox %s cannot be read: %w", r.ID, b.err)
	}
	if b.state == gone || b.meta.Instance != r.Instance {
		<-b.turn
		return nil, nil
	}
	return b, nil
}

// set publishes a new state of b, whose turn the caller has.
func (h *host) set(b *box, m meta, s state, cell *spawn.Confinement) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b.meta, b.state, b.cell = m, s, cell
	if s == gone {
		delete(h.boxes, m.ID)
	}
}

// list returns what there is, or what there is of ids; a create under way is not there yet.
func (h *host) list(ids []string) (snapshot, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	named := len(ids) > 0
	if !named {
		ids = slices.Collect(maps.Keys(h.boxes))
	} else {
		ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	}
	snap := snapshot{Sandboxes: make([]sandbox, 0, len(ids)), Complete: !named}
	for _, id := range ids {
		b, ok := h.boxes[id]
		switch {
		case !ok || b.state == making:
		case b.state == broken && named:
			return snapshot{}, fmt.Errorf("sandbox %s cannot be read: %w", id, b.err)
		case b.state == broken:
			snap.Complete = false
		default:
			snap.Sandboxes = append(snap.Sandboxes, sandbox{meta: b.meta, Running: b.state == running})
		}
	}
	return snap, nil
}

// enter makes the cell of m and lets the runner serve it.
func (h *host) enter(m meta, env map[string]string) (*spawn.Confinement, error) {
	spec := m.spec()
	spec.Env = env
	p, err := spec.Effective()
	if err != nil {
		return nil, err
	}
	home := filepath.Join(h.homes, m.ID, homeDir)
	for name, value := range map[string]string{"HOME": home, "TMPDIR": filepath.Join(home, tmpDir)} {
		if _, own := env[name]; !own {
			p.Env[name] = value
		}
	}
	limits := spawn.Limits{Name: h.mark + m.ID, Home: home, UID: m.UID, GID: m.UID, MemoryMB: m.MemoryMB}
	if m.UID != 0 {
		limits.PIDs, limits.OpenFiles = p.PIDs, openFiles
	}
	cell, err := h.spawner.Confine(limits)
	if err != nil {
		return nil, err
	}
	if err := h.server.Add(runner.Sandbox{ID: m.ID, Home: home, Env: p.Env, Confinement: cell}); err != nil {
		cell.Close()
		return nil, err
	}
	return cell, nil
}

// leave ends what enter began. After an error processes may live, and it can be called again.
func (h *host) leave(ctx context.Context, id string, cell *spawn.Confinement) error {
	ctx, cancel := h.clock.WithTimeout(ctx, killBudget)
	defer cancel()
	if err := h.server.Remove(ctx, id); err != nil {
		return fmt.Errorf("sandbox %s: %w", id, err)
	}
	cell.Close()
	return nil
}
