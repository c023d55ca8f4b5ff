package registry_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/keepwell-go/keepwell/registry"
	"github.com/keepwell-go/keepwell/registry/fresh"
)

// TestNoOldAnswerIsTakenForANewOne drives a Registry whose lists, adoptions and observer take their time and fail in every
// way, while objects are created, destroyed and come and go behind its back. // R1, R6, R11, R15, R78, R79, R80, R81, R82
func TestNoOldAnswerIsTakenForANewOne(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) { rapid.SyncTest(rt, explore) })
}

func explore(t *rapid.T) {
	w := &world{
		rng:     rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)),
		faulty:  rapid.Bool().Draw(t, "faulty"),
		backend: map[string]int{}, since: map[string]time.Time{}, touched: map[string]time.Time{},
		held: map[string]int{}, created: map[string]time.Time{},
		counted: map[string]entry{}, told: map[string]time.Time{}, dead: map[int]bool{}, spurned: map[uint64]bool{},
	}
	w.r = registry.New(w.list, config{Adopt: w.adopt, Observe: w.observe, Grace: -1, Cap: 1, Budget: 60 * time.Millisecond})
	defer time.Sleep(time.Hour) // for what still runs, so that a failure is not told as a deadlock
	do := func(f func(k string)) func(*rapid.T) {
		return func(t *rapid.T) {
			go f(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"))
			w.pause(4)
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"create": do(w.create), "destroy": do(w.destroy), "invalidate": do(w.invalidate),
		"appear": do(w.appear), "vanish": do(w.vanish),
		"resolve": do(func(k string) { w.ask(k, false, w.r.Resolve) }),
		"refresh": do(func(k string) { w.ask(k, true, w.r.Refresh) }),
		"sync":    do(func(string) { w.sync() }),
		"":        w.check,
	})
	w.finish(t)
}

// ask calls Resolve or Refresh, and judges the answer if nothing about k changed between the call and the return.
func (w *world) ask(k string, refresh bool, f func(context.Context, string) (entry, error)) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if w.chance(3) {
		time.AfterFunc(5*time.Millisecond, cancel)
	}
	begun := time.Now()
	_, hit := w.r.Lookup(k)
	defer func() {
		if p := recover(); p != nil && (!w.faulty || p.(*fresh.PanicError) == nil) {
			w.locked(func() { w.fault("panic %v", p) })
		}
	}()
	e, err := f(ctx, k)
	w.locked(func() { w.judge(k, begun, hit && !refresh, e, err, ctx.Err()) })
}

func (w *world) judge(k string, begun time.Time, hit bool, e entry, err, ended error) {
	v, exists := w.backend[k]
	var h *registry.HeldError
	switch {
	case err == nil && e.Key != k:
		w.fault("asked for %s and got %+v", k, e)
	case errors.As(err, &h) && !h.Destroying && w.created[k].Before(begun):
		w.fault("%v, although nobody created it", err)
	case !w.touched[k].Before(begun) || w.held[k] > 0:
		// anything may be said
	case errors.As(err, &h):
		w.fault("%v, although nobody held it", err)
	case errors.Is(err, registry.ErrNotFound) && exists && v%7 != 0:
		w.fault("%v, although it was there as %d all the time", err, v)
	case err == nil && !exists && !hit:
		w.fault("got %+v, although nothing was there all the time", e)
	case errors.Is(err, registry.ErrUnavailable) && !w.faulty && !errors.Is(err, fresh.ErrBudget):
		w.fault("%v, although nothing had failed", err)
	case ended != nil && err == ended, err == nil, errors.Is(err, registry.ErrNotFound), errors.Is(err, registry.ErrUnavailable):
	default:
		w.fault("no such error: %v", err)
	}
}

func (w *world) sync() {
	defer func() { _ = recover() }() // of the list
	rep, err := w.r.Sync(context.Background())
	if err != nil && !w.faulty && !errors.Is(err, fresh.ErrBudget) {
		w.locked(func() { w.fault("Sync: %v", err) })
	}
	for e := range w.r.All() {
		if _, still := w.r.Lookup(e.Key); err == nil && !rep.Has(e.Key) && still {
			w.locked(func() { w.fault("the report does not have %+v, which is registered", e) })
		}
	}
}

func (w *world) check(t *rapid.T) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for e := range w.r.All() {
		n++
		if w.counted[e.Key] != e {
			w.fault("%+v is registered, %+v counted", e, w.counted[e.Key])
		}
		if w.dead[e.Value] {
			w.fault("%+v came back", e)
		}
	}
	if s := w.r.Stats(); s.Entries != n {
		w.fault("%d entries, Stats = %+v", n, s)
	}
	if len(w.faults) > 0 {
		t.Fatal(w.faults)
	}
}

// finish lets everything end, and checks that nothing is left over and one list sets everything right.
func (w *world) finish(t *rapid.T) {
	time.Sleep(time.Minute)
	w.check(t)
	if s := w.r.Stats(); s.Held != 0 || s.Tombstones != 0 || s.Lists.Running || s.Lists.Waiters != 0 {
		t.Fatalf("when all is quiet: %+v", s)
	}
	w.faulty = false
	if _, err := w.r.Sync(t.Context()); err != nil {
		t.Fatalf("the last Sync: %v", err)
	}
	for e := range w.r.All() { // a replaced object keeps its entry, whoever replaced it
		if _, exists := w.backend[e.Key]; !exists {
			t.Errorf("%+v is not in the backend", e)
		}
	}
	for k, v := range w.backend {
		if _, ok := w.r.Lookup(k); !ok && v%7 != 0 {
			t.Errorf("%s is not registered, and the backend has %d", k, v)
		}
	}
	w.check(t)
	w.r.Close()
}
