// Package memory is a backend for tests: sandboxes that exist in memory only, kept as strictly as a real engine keeps them.
//
// It prevents the fault of a fake that is kinder than the real thing: it passes backendtest, refuses what real engines refuse,
// and slows down, hangs, fails, loses races, half-destroys and panics when asked to.
//
// An Engine is what really exists. Each Backend is one handle on it for one owner: two handles of one owner are two replicas,
// two owners are two installations that share an engine.
package memory

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/keepwell-go/keepwell/backend"
)

// Backend is one owner's handle on an Engine, made by New or Engine.Open. It implements backend.Backend, backend.Marker and
// backend.Watcher, and is safe for concurrent use.
type Backend struct {
	engine *Engine
	owner  string
}

// New returns a handle on an Engine of its own.
func New(cfg Config) *Backend { return NewEngine(cfg).Open("memory") }

// Engine returns the engine that b is a handle on.
func (b *Backend) Engine() *Engine { return b.engine }

// Owner returns the owner that b was opened for.
func (b *Backend) Owner() string { return b.owner }

// Create implements backend.Backend.
func (b *Backend) Create(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
	return do(ctx, b.engine, "create", s.ID, s.Check, func(bool) (backend.Sandbox, error) {
		return b.create(ctx, s)
	})
}

func (b *Backend) create(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
	e, k := b.engine, key{b.owner, s.ID}
	neu, old, err := e.begin(k, s)
	if err != nil {
		return backend.Sandbox{}, err
	}
	settled := old // what stays if the hook fails or panics
	defer func() { e.settle(k, neu, settled) }()
	made := neu.sandbox // only this call writes it while it is busy
	if made.Endpoint, err = e.cfg.Endpoint(ctx, made); err != nil {
		return backend.Sandbox{}, fmt.Errorf("memory: create %q: endpoint: %w", s.ID, err)
	}
	made.Running = true
	settled = &box{sandbox: made, files: neu.files}
	made.Resumed = old != nil
	return made, nil
}

// List implements backend.Backend. With ids it answers for these alone, so that whoever takes that for everything is found out.
func (b *Backend) List(ctx context.Context, ids ...string) (backend.Snapshot, error) {
	return do(ctx, b.engine, "list", strings.Join(ids, ","), nil, func(partial bool) (backend.Snapshot, error) {
		snap := backend.Snapshot{Sandboxes: b.all(ids), Complete: len(ids) == 0 && !partial}
		if partial && len(ids) == 0 {
			snap.Sandboxes = snap.Sandboxes[:len(snap.Sandboxes)/2]
		}
		return snap, nil
	})
}

// all returns the sandboxes of the owner, or those of ids, by id.
func (b *Backend) all(ids []string) []backend.Sandbox {
	b.engine.mu.Lock()
	defer b.engine.mu.Unlock()
	var all []backend.Sandbox
	for k, box := range b.engine.boxes {
		if k.owner == b.owner && (len(ids) == 0 || slices.Contains(ids, k.id)) {
			all = append(all, box.sandbox)
		}
	}
	slices.SortFunc(all, func(x, y backend.Sandbox) int { return strings.Compare(x.ID, y.ID) })
	return all
}

// Stop implements backend.Backend.
func (b *Backend) Stop(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
	return do(ctx, b.engine, "stop", r.ID, r.Check, func(bool) (backend.Outcome, error) {
		return b.end(ctx, r, ending{stop: true, keep: true})
	})
}

// Destroy implements backend.Backend.
func (b *Backend) Destroy(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
	return do(ctx, b.engine, "destroy", r.ID, r.Check, func(partial bool) (backend.Outcome, error) {
		out, err := b.end(ctx, r, ending{keep: partial})
		if out == backend.Stopped && partial {
			return backend.Unknown, fmt.Errorf("memory: destroy %q: the workspace stays: %w", r.ID, fs.ErrPermission)
		}
		return out, err
	})
}

// ending is how an instance ends.
type ending struct {
	stop bool // a stopped one is Gone already
	keep bool // the workspace stays
}

func (b *Backend) end(ctx context.Context, r backend.Ref, how ending) (backend.Outcome, error) {
	e, k := b.engine, key{b.owner, r.ID}
	box, err := e.claim(ctx, k, r.Instance, how.stop)
	if err != nil {
		return backend.Unknown, err
	}
	if box == nil {
		return backend.Gone, nil
	}
	after := box.stopped()
	if !how.keep {
		after = nil
	}
	defer e.settle(k, box, after)
	if box.sandbox.Running {
		e.cfg.Ended(r)
	}
	return backend.Stopped, nil
}

// Mark implements backend.Marker.
func (b *Backend) Mark(ctx context.Context, r backend.Ref, pinned bool) (backend.Outcome, error) {
	return do(ctx, b.engine, "mark", r.ID, r.Check, func(bool) (backend.Outcome, error) {
		return b.mark(ctx, r, pinned)
	})
}

func (b *Backend) mark(ctx context.Context, r backend.Ref, pinned bool) (backend.Outcome, error) {
	e, k := b.engine, key{b.owner, r.ID}
	old, err := e.claim(ctx, k, r.Instance, true)
	if err != nil {
		return backend.Unknown, err
	}
	if old == nil {
		return backend.Gone, nil
	}
	marked := &box{sandbox: old.sandbox, files: old.files}
	marked.sandbox.Pinned, marked.sandbox.Renewed = pinned, e.cfg.Clock.Now()
	e.settle(k, old, marked)
	return backend.Marked, nil
}

// Ping implements backend.Backend.
func (b *Backend) Ping(ctx context.Context) error {
	_, err := do(ctx, b.engine, "ping", "", nil, func(bool) (struct{}, error) { return struct{}{}, nil })
	return err
}

// Watch implements backend.Watcher. It tells of other owners' changes, too.
func (b *Backend) Watch(ctx context.Context, changed func()) {
	next := b.engine.nextChange()
	for {
		select {
		case <-next:
			next = b.engine.nextChange() // before the list that changed may lead to
			changed()
		case <-ctx.Done():
			return
		}
	}
}
