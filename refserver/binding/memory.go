package binding

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/keepwell-go/keepwell/backend"
)

// Memory is a Store whose rows end with the program. It is made by NewMemory.
type Memory struct {
	mu   sync.Mutex // guards rows
	rows map[backend.Ref]map[string]*row
}

// row is what is known of one public id: a start, a binding, or both.
type row struct {
	started        bool
	at, until, end time.Time // until it expires; end is zero until it was seen
	bound          string
}

// NewMemory returns an empty Store.
func NewMemory() *Memory { return &Memory{rows: map[backend.Ref]map[string]*row{}} }

var _ Store = (*Memory)(nil)

// ofLocked returns the row of an id, which it adds where there is none.
func (m *Memory) ofLocked(ref backend.Ref, id string) *row {
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
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.ofLocked(s.Ref, s.ID); !r.started {
		r.started, r.at, r.until = true, s.At, s.Expires
	}
	return nil
}

// Bind implements Store.
func (m *Memory) Bind(ctx context.Context, ref backend.Ref, id, bound string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.ofLocked(ref, id)
	if r.bound != "" && r.bound != bound {
		return fmt.Errorf("%w: %s of sandbox %s", ErrConflict, id, ref.ID)
	}
	r.bound = bound
	return nil
}

// End implements Store.
func (m *Memory) End(ctx context.Context, ref backend.Ref, id string, at time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.rows[ref][id]; r != nil && r.started && r.end.IsZero() {
		r.end = at
	}
	return nil
}

// Bound implements Store.
func (m *Memory) Bound(ctx context.Context, ref backend.Ref, id string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.rows[ref][id]; r != nil {
		return r.bound, ctx.Err()
	}
	return "", ctx.Err()
}

// Public implements Store.
func (m *Memory) Public(ctx context.Context, ref backend.Ref, bound []string) (map[string]string, error) {
	asked := make(map[string]bool, len(bound))
	for _, id := range bound {
		asked[id] = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	public := map[string]string{}
	for id, r := range m.rows[ref] {
		if asked[r.bound] {
			public[r.bound] = id
		}
	}
	return public, ctx.Err()
}

// Prune implements Store.
func (m *Memory) Prune(ctx context.Context, cutoff time.Time) (n int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for ref, rows := range m.rows {
		for id, r := range rows {
			if r.started && r.over(cutoff) {
				r.started = false
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
	return n, nil
}

// over says whether the process had ended or expired at cutoff.
func (r *row) over(cutoff time.Time) bool {
	return !r.until.After(cutoff) || !r.end.IsZero() && !r.end.After(cutoff)
}

// Refs implements Store.
func (m *Memory) Refs(ctx context.Context) (map[backend.Ref]time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	refs := make(map[backend.Ref]time.Time, len(m.rows))
	for ref, rows := range m.rows {
		var latest time.Time
		for _, r := range rows {
			if r.started && r.at.After(latest) {
				latest = r.at
			}
		}
		refs[ref] = latest
	}
	return refs, ctx.Err()
}

// Forget implements Store.
func (m *Memory) Forget(ctx context.Context, ref backend.Ref) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.rows, ref)
	return nil
}

// Ping implements Store.
func (m *Memory) Ping(ctx context.Context) error { return ctx.Err() }

// Close implements Store. There is nothing to end.
func (m *Memory) Close() error { return nil }
