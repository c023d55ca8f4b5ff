package registry_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwell-go/keepwell/registry"
)

type (
	reg      = registry.Registry[string, int]
	entry    = registry.Entry[string, int]
	event    = registry.Event[string, int]
	snapshot = registry.Snapshot[string, int]
	config   = registry.Config[string, int]
	hold     = registry.Hold[string, int]
)

// backend is what the registry is a cache of. A list looks at it first and is then on its way for as long as took says.
type backend struct {
	took time.Duration

	mu      sync.Mutex // guards the fields below
	items   map[string]int
	partial bool
	fail    error // of the next list
	crash   any   // of the next list
	lists   int
	asked   [][]string // by list, sorted
}

func (b *backend) list(ctx context.Context, keys []string) (snapshot, error) {
	b.mu.Lock()
	b.lists++
	slices.Sort(keys)
	b.asked = append(b.asked, keys)
	snap, fail, crash := snapshot{Items: maps.Clone(b.items), Complete: !b.partial}, b.fail, b.crash
	b.fail, b.crash = nil, nil
	b.mu.Unlock()
	if b.took > 0 {
		select {
		case <-time.After(b.took):
		case <-ctx.Done():
			return snapshot{}, ctx.Err()
		}
	}
	if crash != nil {
		panic(crash)
	}
	return snap, fail
}

func (b *backend) set(k string, v int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.items == nil {
		b.items = map[string]int{}
	}
	b.items[k] = v
}

func (b *backend) remove(k string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.items, k)
}

func (b *backend) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lists
}

// run runs body in a bubble of virtual time with a registry in front of b, and checks what must hold when it is quiet.
func run(t *testing.T, b *backend, cfg config, body func(t *testing.T, r *reg)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := registry.New(b.list, cfg)
		body(t, r)
		synctest.Wait()
		r.Close()
		if s := r.Stats(); s.Tombstones != 0 || s.Lists.Waiters != 0 || s.Lists.Running {
			t.Errorf("when all is quiet: %+v", s)
		}
	})
}

// answer is how one call went.
type answer struct {
	entry    entry
	err      error
	panicked any
	took     time.Duration
}

// ask calls f in its own goroutine and returns when that waits or has its answer.
func ask(f func() (entry, error)) <-chan answer {
	ch := make(chan answer, 1)
	begun := time.Now()
	go func() {
		var a answer
		defer func() {
			a.panicked = recover()
			a.took = time.Since(begun)
			ch <- a
		}()
		a.entry, a.err = f()
	}()
	synctest.Wait()
	return ch
}

func resolve(ctx context.Context, r *reg, k string) <-chan answer {
	return ask(func() (entry, error) { return r.Resolve(ctx, k) })
}

func refresh(ctx context.Context, r *reg, k string) <-chan answer {
	return ask(func() (entry, error) { return r.Refresh(ctx, k) })
}

// syncing returns the report and the error of a Sync once it has ended.
func syncing(ctx context.Context, r *reg) func() (registry.Report[string, int], error) {
	var rep registry.Report[string, int]
	done := ask(func() (e entry, err error) { rep, err = r.Sync(ctx); return e, err })
	return func() (registry.Report[string, int], error) { a := <-done; return rep, a.err }
}

// fill registers k.
func fill(t *testing.T, r *reg, k string, v int) entry {
	t.Helper()
	h, err := r.Hold(k)
	if err != nil || !h.Fill(v) {
		t.Fatalf("fill %s: %v", k, err)
	}
	e, ok := r.Lookup(k)
	if !ok {
		t.Fatalf("%s is not registered", k)
	}
	return e
}

func take(t *testing.T, r *reg, k string) *hold {
	t.Helper()
	h, err := r.Take(k)
	if err != nil {
		t.Fatalf("take %s: %v", k, err)
	}
	return h
}

// present returns what is registered, as All sees it.
func present(r *reg) map[string]int {
	all := map[string]int{}
	for e := range r.All() {
		all[e.Key] = e.Value
	}
	return all
}

// journal keeps what Observe was told.
type journal struct {
	mu     sync.Mutex // guards events
	events []event
}

func (j *journal) observe(e event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, e)
}

// told returns the events and forgets them.
func (j *journal) told() []event {
	j.mu.Lock()
	defer j.mu.Unlock()
	events := j.events
	j.events = nil
	return events
}

// elapse lets time pass: virtual time in a bubble, and in benchmarks what a list takes.
func elapse(d time.Duration) { time.Sleep(d) }
