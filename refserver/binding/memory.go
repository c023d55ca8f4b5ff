package binding

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/keepwell-go/keepwell/backend"
)

var (
	errClosed  = errors.New("binding: the store is closed")
	errNothing = errors.New("binding: an id cannot be bound to nothing")
)

// Memory is a Store whose rows end with the program. Only Prune and Forget bound what it holds. It is made by NewMemory.
type Memory struct {
	mu     sync.Mutex // guards the fields below
	closed bool
	rows   map[backend.Ref]map[string]*row // by public id; never an empty map
}

// row is what is known of one public id: a start, a binding, or both. Times are in milliseconds.
type row struct {
	started     bool
	at, expires int64
	ended       bool
	end         int64
	bound       string // "": not bound
}

// NewMemory returns an empty Store.
func NewMemory() *Memory { return &Memory{rows: map[backend.Ref]map[string]*row{}} }

// locked calls f under the lock, unless ctx has ended or m is closed.
func (m *Memory) locked(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("binding: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errClosed
	}
	return f()
}

// rowLocked returns the row of an id, which it adds where there is none.
func (m *Memory) rowLocked(ref backend.Ref, id string) *row {
	rows := m.rows[ref]
	if rows == nil {
		rows = map[string]*row{}
		m.rows[ref] = rows
	}
	if rows[id] == nil {
		rows[id] = &row{}
	}
	return rows[id]
}

// Begin implements Store.
func (m *Memory) Begin(ctx context.Context, s Start) error {
	return m.locked(ctx, func() error {
		if r := m.rowLocked(s.Ref, s.ID); !r.started {
			r.started, r.at, r.expires = true, s.At.UnixMilli(), s.Expires.UnixMilli()
		}
		return nil
	})
}

// Bind implements Store.
func (m *Memory) Bind(ctx context.Context, ref backend.Ref, id, bound string) error {
	if bound == "" {
		return errNothing
	}
	return m.locked(ctx, func() error {
		r := m.rowLocked(ref, id)
		if r.bound != "" && r.bound != bound {
			return fmt.Errorf("%w: %s of sandbox %s", ErrConflict, id, ref.ID)
		}
		r.bound = bound
		return nil
	})
}

// End implements Store.
func (m *Memory) End(ctx context.Context, ref backend.Ref, id string, at time.Time) error {
	return m.locked(ctx, func() error {
		if r := m.rows[ref][id]; r != nil && r.started && !r.ended {
			r.ended, r.end = true, at.UnixMilli()
		}
		return nil
	})
}

// Bound implements Store.
func (m *Memory) Bound(ctx context.Context, ref backend.Ref, id string) (bound string, err error) {
	err = m.locked(ctx, func() error {
		if r := m.rows[ref][id]; r != nil {
			bound = r.bound
		}
		return nil
	})
	return bound, err
}

// Public implements Store. It costs a look at each row of the incarnation.
func (m *Memory) Public(ctx context.Context, ref backend.Ref, bound []string) (map[string]string, error) {
	asked := make(map[string]bool, len(bound))
	for _, id := range bound {
		asked[id] = true
	}
	public := map[string]string{}
	err := m.locked(ctx, func() error {
		for id, r := range m.rows[ref] {
			if first, ok := public[r.bound]; r.bound != "" && asked[r.bound] && (!ok || id < first) {
				public[r.bound] = id
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return public, nil
}

// Prune implements Store.
func (m *Memory) Prune(ctx context.Context, cutoff time.Time) (n int, err error) {
	err = m.locked(ctx, func() error {
		for ref, rows := range m.rows {
			for id, r := range rows {
				if r.started && r.over(cutoff.UnixMilli()) {
					*r = row{bound: r.bound}
					n++
				}
				if !r.started && (r.bound == "" || r.bound == id) {
					delete(rows, id)
				}
			}
			if len(rows) == 0 {
				delete(m.rows, ref)
			}
		}
		return nil
	})
	return n, err
}

// over says whether the process had ended or the start expired at cutoff.
func (r *row) over(cutoff int64) bool { return r.expires <= cutoff || r.ended && r.end <= cutoff }

// Refs implements Store.
func (m *Memory) Refs(ctx context.Context) (map[backend.Ref]time.Time, error) {
	refs := map[backend.Ref]time.Time{}
	err := m.locked(ctx, func() error {
		for ref, rows := range m.rows {
			refs[ref] = latest(rows)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return refs, nil
}

// latest returns the time of the latest start, or the zero time if there is none.
func latest(rows map[string]*row) (t time.Time) {
	for _, r := range rows {
		if at := time.UnixMilli(r.at).UTC(); r.started && (t.IsZero() || at.After(t)) {
			t = at
		}
	}
	return t
}

// Forget implements Store.
func (m *Memory) Forget(ctx context.Context, ref backend.Ref) error {
	return m.locked(ctx, func() error {
		delete(m.rows, ref)
		return nil
	})
}

// Ping implements Store.
func (m *Memory) Ping(ctx context.Context) error { return m.locked(ctx, func() error { return nil }) }

// Close implements Store. The rows are gone with it.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed, m.rows = true, nil
	return nil
}
