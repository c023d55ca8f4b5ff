package registry_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keepwell-go/keepwell/registry"
	"github.com/keepwell-go/keepwell/registry/fresh"
)

func TestAMissAdoptsWhatTheBackendHas(t *testing.T) { // R1
	b := &backend{items: map[string]int{"a": 1, "z": 26}}
	run(t, b, config{}, func(t *testing.T, r *reg) {
		e, err := r.Resolve(t.Context(), "a")
		if err != nil || e.Key != "a" || e.Value != 1 || e.Version == 0 {
			t.Fatalf("Resolve = %+v, %v", e, err)
		}
		if got, ok := r.Lookup("a"); !ok || got != e {
			t.Errorf("Lookup = %+v, %v; want %+v", got, ok, e)
		}
		if again, err := r.Resolve(t.Context(), "a"); err != nil || again != e || b.count() != 1 {
			t.Errorf("a hit = %+v, %v after %d lists", again, err, b.count())
		}
		_, err = r.Resolve(t.Context(), "b")
		if !errors.Is(err, registry.ErrNotFound) || err.Error() != "registry: not found: b" {
			t.Errorf("Resolve of an absent key: %v", err)
		}
		want := registry.Stats{Entries: 1, Misses: 2, Adopted: 1, Lists: fresh.Stats{Runs: 2}}
		if s := r.Stats(); s != want {
			t.Errorf("Stats = %+v, want %+v", s, want)
		}
		if _, ok := r.Lookup("z"); ok || !maps.Equal(present(r), map[string]int{"a": 1}) {
			t.Errorf("registered: %v; what nobody asked for is left to Sync", present(r))
		}
	})
}

// stopped is an error of Adopt that carries what it declined.
type stopped struct{ value int }

func (stopped) Error() string { return "stopped" }
func (stopped) Unwrap() error { return registry.ErrNotAdoptable }

func TestAStoppedObjectIsDeclined(t *testing.T) { // R2
	j := &journal{}
	cfg := config{Observe: j.observe, Adopt: func(_ context.Context, _ string, v int) (int, error) { return 0, stopped{v} }}
	run(t, &backend{items: map[string]int{"a": 7}}, cfg, func(t *testing.T, r *reg) {
		_, err := r.Resolve(t.Context(), "a")
		var s stopped
		if !errors.Is(err, registry.ErrNotFound) || !errors.Is(err, registry.ErrNotAdoptable) || !errors.As(err, &s) || s.value != 7 || errors.Is(err, registry.ErrUnavailable) {
			t.Errorf("Resolve = %v", err)
		}
		if err.Error() != "registry: not found: a: stopped" {
			t.Errorf("it says %q", err)
		}
		rep, err := r.Sync(t.Context())
		if err != nil || rep.Declined != 1 || rep.Adopted+rep.Failed+rep.Dropped != 0 {
			t.Errorf("Sync = %+v, %v", rep, err)
		}
		if s := r.Stats(); s.Declined != 2 || s.Entries != 0 || len(j.told()) != 0 {
			t.Errorf("Stats = %+v", s)
		}
		fill(t, r, "a", 8) // a create resumes it
	})
}

func TestDrainingNeitherListsNorAdopts(t *testing.T) { // R3, R4
	var draining atomic.Bool
	draining.Store(true)
	b := &backend{items: map[string]int{"a": 1, "b": 2}}
	run(t, b, config{Draining: draining.Load, Grace: -1}, func(t *testing.T, r *reg) {
		for _, f := range []func(context.Context, string) (entry, error){r.Resolve, r.Refresh} {
			_, err := f(t.Context(), "a")
			if !errors.Is(err, registry.ErrNotFound) || err.Error() != "registry: not found: a: draining, so nothing was listed" {
				t.Errorf("a miss: %v", err)
			}
		}
		rep, err := r.Sync(t.Context())
		if err != nil || rep.Complete || rep.Items != nil || rep.Has("a") {
			t.Errorf("Sync = %+v, %v", rep, err)
		}
		if b.count() != 0 || r.Stats().Entries != 0 {
			t.Errorf("%d lists, %d entries", b.count(), r.Stats().Entries)
		}
		fill(t, r, "c", 3)
		if _, err := r.Refresh(t.Context(), "c"); !errors.Is(err, registry.ErrNotFound) || b.count() != 1 {
			t.Errorf("Refresh of an entry that is gone: %v after %d lists", err, b.count())
		}
		draining.Store(false)
		if _, err := r.Resolve(t.Context(), "a"); err != nil {
			t.Errorf("not draining any more: %v", err)
		}
	})
}

func TestMissesDuringAListShareOneMore(t *testing.T) { // R5, R6, R8
	b := &backend{took: time.Second, items: map[string]int{"a": 1}}
	run(t, b, config{}, func(t *testing.T, r *reg) {
		first := resolve(t.Context(), r, "a")
		b.set("b", 2) // too late for the first list
		second, third := resolve(t.Context(), r, "b"), resolve(t.Context(), r, "c")
		if a := <-first; a.err != nil || a.took != time.Second {
			t.Errorf("first: %+v", a)
		}
		if a := <-second; a.err != nil || a.entry.Value != 2 || a.took != 2*time.Second {
			t.Errorf("second, created before it was asked for: %+v", a)
		}
		if a := <-third; !errors.Is(a.err, registry.ErrNotFound) {
			t.Errorf("third: %+v", a)
		}
		if b.count() != 2 {
			t.Errorf("%d lists, want 2", b.count())
		}
		if <-resolve(t.Context(), r, "c"); b.count() != 3 {
			t.Errorf("%d lists after one more miss, want 3", b.count())
		}
		want := [][]string{{"a"}, {"b", "c"}, {"c"}}
		if !slices.EqualFunc(b.asked, want, slices.Equal) {
			t.Errorf("asked for %q, want %q", b.asked, want)
		}
	})
}

func TestAFailedListIsUnavailableAndStrandsNobody(t *testing.T) { // R7, R13
	boom := errors.New("boom")
	b := &backend{took: time.Second, fail: boom, items: map[string]int{"a": 1}}
	run(t, b, config{}, func(t *testing.T, r *reg) {
		first, follower := resolve(t.Context(), r, "a"), resolve(t.Context(), r, "a")
		a := <-first
		if !errors.Is(a.err, registry.ErrUnavailable) || !errors.Is(a.err, boom) || errors.Is(a.err, registry.ErrNotFound) || a.err.Error() != "registry: unavailable: boom" {
			t.Errorf("first: %+v", a)
		}
		if a := <-follower; a.err != nil || a.entry.Value != 1 {
			t.Errorf("follower: %+v", a)
		}
	})
}

func TestAListThatEndsItselfIsNotTheCallersEnd(t *testing.T) { // R13
	for _, end := range []error{context.Canceled, context.DeadlineExceeded} {
		run(t, &backend{fail: end}, config{}, func(t *testing.T, r *reg) {
			if _, err := r.Resolve(t.Context(), "a"); !errors.Is(err, registry.ErrUnavailable) || !errors.Is(err, end) {
				t.Errorf("Resolve = %v", err)
			}
		})
	}
}

func TestOneListRunsUnderAnyLoad(t *testing.T) { // R9
	var running, most, lists atomic.Int64
	r := registry.New(func(context.Context, []string) (snapshot, error) {
		now := running.Add(1)
		defer running.Add(-1)
		lists.Add(1)
		for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		return snapshot{Complete: true}, nil
	}, config{})
	defer r.Close()
	var wg sync.WaitGroup
	for i := range 500 {
		wg.Go(func() {
			if _, err := r.Resolve(t.Context(), fmt.Sprint(i%50)); !errors.Is(err, registry.ErrNotFound) {
				t.Errorf("Resolve = %v", err)
			}
		})
	}
	wg.Wait()
	if most.Load() != 1 || lists.Load() > 500 {
		t.Errorf("%d lists at once, %d in all", most.Load(), lists.Load())
	}
	if s := r.Stats(); s.Tombstones != 0 || s.Misses != 500 {
		t.Errorf("Stats = %+v", s)
	}
}

func TestALeaverFailsNobodyAndItsAdoptionGoesOn(t *testing.T) { // R81
	adopt := func(ctx context.Context, _ string, v int) (int, error) {
		elapse(time.Second)
		return v, ctx.Err()
	}
	run(t, &backend{items: map[string]int{"a": 1}}, config{Adopt: adopt}, func(t *testing.T, r *reg) {
		ctx, leave := context.WithCancel(t.Context())
		leaver, stayer := resolve(ctx, r, "a"), resolve(t.Context(), r, "a")
		leave()
		if a := <-leaver; a.err != context.Canceled || a.took != 0 {
			t.Errorf("leaver: %+v", a)
		}
		if a := <-stayer; a.err != nil || a.took != time.Second {
			t.Errorf("stayer: %+v", a)
		}
		if s := r.Stats(); s.Adopted != 1 {
			t.Errorf("Stats = %+v", s)
		}
	})
}

func TestAPanicInAListReachesItsCallersAndWedgesNothing(t *testing.T) { // R82
	b := &backend{took: time.Second, items: map[string]int{"a": 1}, crash: "boom"}
	run(t, b, config{}, func(t *testing.T, r *reg) {
		if p, ok := (<-resolve(t.Context(), r, "a")).panicked.(*fresh.PanicError); !ok || p.Value != "boom" {
			t.Errorf("panicked with %v", p)
		}
		if a := <-resolve(t.Context(), r, "a"); a.err != nil || a.panicked != nil {
			t.Errorf("next caller: %+v", a)
		}
	})
}

func TestAFailedAdoptionIsLoggedAndTriedAgain(t *testing.T) { // R12
	logs, seen := observer.New(zap.WarnLevel)
	boom := errors.New("boom")
	calls := 0
	cfg := config{Logger: zap.New(logs), Adopt: func(_ context.Context, _ string, v int) (int, error) {
		if calls++; calls == 1 {
			return 0, boom
		}
		return v * 10, nil
	}}
	run(t, &backend{items: map[string]int{"a": 1}}, cfg, func(t *testing.T, r *reg) {
		_, err := r.Resolve(t.Context(), "a")
		if !errors.Is(err, registry.ErrUnavailable) || !errors.Is(err, boom) || err.Error() != "registry: unavailable: adopt a: boom" {
			t.Errorf("Resolve = %v", err)
		}
		rep, err := r.Sync(t.Context())
		if err != nil || rep.Adopted != 1 {
			t.Errorf("Sync = %+v, %v", rep, err)
		}
		if e, ok := r.Lookup("a"); !ok || e.Value != 10 {
			t.Errorf("Lookup = %+v, %v; want what Adopt made of it", e, ok)
		}
		if s := r.Stats(); s.AdoptFailed != 1 || s.Adopted != 1 {
			t.Errorf("Stats = %+v", s)
		}
	})
	if all := seen.All(); len(all) != 1 || !strings.HasPrefix(all[0].Message, "registry: adoption failed") || all[0].ContextMap()["key"] != "a" {
		t.Errorf("logged %v", all)
	}
}

func TestNothingIsEvictedForSize(t *testing.T) { // R65
	run(t, &backend{}, config{}, func(t *testing.T, r *reg) {
		for i := range 5_000 {
			fill(t, r, fmt.Sprint(i), i)
		}
		if n := r.UsedBuckets(); n < 3_300 { // by chance 3743 of 8192, give or take 30
			t.Errorf("5000 entries are in %d buckets, so a hit has to search", n)
		}
		elapse(24 * 365 * time.Hour)
		if n := len(present(r)); n != 5_000 || r.Stats().Entries != n {
			t.Errorf("%d of 5000 are left", n)
		}
	})
}

func TestALoopOverAllMayUseTheRegistry(t *testing.T) {
	run(t, &backend{}, config{}, func(t *testing.T, r *reg) {
		for _, k := range []string{"a", "b", "c"} {
			fill(t, r, k, 1)
		}
		for e := range r.All() {
			take(t, r, e.Key).Release()
		}
		for range r.All() {
			t.Error("something is left")
		}
		fill(t, r, "a", 1)
		fill(t, r, "b", 1)
		seen := 0
		for range r.All() {
			seen++
			break
		}
		if seen != 1 {
			t.Errorf("a loop that breaks saw %d", seen)
		}
	})
}
