package registry_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keepwell-go/keepwell/registry"
	"github.com/keepwell-go/keepwell/registry/fresh"
)

func TestAListOverItsBudgetIsUnavailable(t *testing.T) {
	for budget, want := range map[time.Duration]time.Duration{0: 15 * time.Second, time.Second: time.Second} {
		run(t, &backend{took: time.Hour}, config{Budget: budget}, func(t *testing.T, r *reg) {
			a := <-resolve(t.Context(), r, "a")
			if !errors.Is(a.err, registry.ErrUnavailable) || !errors.Is(a.err, fresh.ErrBudget) || a.took != want {
				t.Errorf("Resolve = %+v", a)
			}
		})
	}
}

func TestAnAdoptionOverItsBudgetIsUnavailableAndItsValueForgotten(t *testing.T) {
	logs, seen := observer.New(zap.WarnLevel)
	j := &journal{}
	var cause error
	calls := 0
	cfg := config{Budget: 10 * time.Second, Observe: j.observe, Logger: zap.New(logs), Adopt: func(ctx context.Context, _ string, v int) (int, error) {
		if calls++; calls > 1 {
			return v, nil
		}
		<-ctx.Done()
		cause = context.Cause(ctx)
		time.Sleep(time.Minute) // ignores its end
		return v, nil
	}}
	run(t, &backend{items: map[string]int{"a": 1}}, cfg, func(t *testing.T, r *reg) {
		one, two := resolve(t.Context(), r, "a"), resolve(t.Context(), r, "a")
		for _, ch := range []<-chan answer{one, two} {
			a := <-ch
			if !errors.Is(a.err, registry.ErrUnavailable) || !errors.Is(a.err, fresh.ErrBudget) || a.took != 10*time.Second {
				t.Errorf("Resolve = %+v", a)
			}
			if want := "registry: unavailable: adopt a: fresh: run exceeded its budget of 10s"; a.err.Error() != want {
				t.Errorf("it says %q, want %q", a.err, want)
			}
		}
		synctest.Wait()
		if cause != fresh.ErrBudget || r.Stats().Tombstones != 0 {
			t.Errorf("the adoption was cancelled because of %v, %+v", cause, r.Stats())
		}
		if a := <-resolve(t.Context(), r, "a"); !errors.Is(a.err, fresh.ErrBudget) || a.took != 0 || calls != 1 {
			t.Errorf("while it has not returned: %+v, %d calls", a, calls)
		}
		fill(t, r, "b", 1)
		take(t, r, "b").Release()
		if s := r.Stats(); s.Tombstones != 0 {
			t.Errorf("an adoption that is given up needs no fence: %+v", s)
		}
		time.Sleep(2 * time.Minute)
		if s := r.Stats(); s.Entries != 0 || s.AdoptFailed != 1 || s.Adopted != 0 || s.Fenced != 0 {
			t.Errorf("when it has returned: %+v", s)
		}
		j.told()
		if a := <-resolve(t.Context(), r, "a"); a.err != nil || calls != 2 || len(j.told()) != 1 {
			t.Errorf("after that: %+v, %d calls", a, calls)
		}
	})
	if seen.Len() != 1 || seen.All()[0].Message != "registry: adoption exceeded its budget" {
		t.Errorf("logged %v", seen.All())
	}
}

func TestAnAdoptionThatEndsItsGoroutineIsAPanic(t *testing.T) { // R82
	var ctx context.Context
	adopt := func(c context.Context, _ string, v int) (int, error) {
		if ctx = c; v == 2 {
			runtime.Goexit()
		}
		return v, nil
	}
	run(t, &backend{items: map[string]int{"a": 1, "b": 2}}, config{Adopt: adopt}, func(t *testing.T, r *reg) {
		if p, ok := (<-resolve(t.Context(), r, "b")).panicked.(*fresh.PanicError); !ok || !errors.Is(p, fresh.ErrGoexit) {
			t.Errorf("panicked with %v", p)
		}
		<-resolve(t.Context(), r, "a")
		if ctx.Err() == nil {
			t.Error("the context of an adoption outlives it")
		}
	})
}

func TestAReportHasNoBudget(t *testing.T) {
	cfg := config{
		Budget:  time.Second,
		Adopt:   func(_ context.Context, _ string, v int) (int, error) { return v, nil },
		Observe: func(event) { time.Sleep(time.Minute) },
	}
	run(t, &backend{items: map[string]int{"a": 1}}, cfg, func(t *testing.T, r *reg) {
		if a := <-resolve(t.Context(), r, "a"); a.err != nil || a.took != time.Minute {
			t.Errorf("Resolve = %+v", a)
		}
	})
}

func TestTenThousandMissesAtOnceCostTwoLists(t *testing.T) { // R5, R9
	b := &backend{took: 10 * time.Millisecond}
	run(t, b, config{}, func(t *testing.T, r *reg) {
		begun := time.Now()
		var wg sync.WaitGroup
		for range 10_000 {
			wg.Go(func() {
				if _, err := r.Resolve(t.Context(), "a"); !errors.Is(err, registry.ErrNotFound) {
					t.Errorf("Resolve = %v", err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(begun); b.count() != 2 || took != 20*time.Millisecond {
			t.Errorf("%d lists, and the last was answered after %v", b.count(), took)
		}
	})
}

func TestMinIntervalPacesTheLists(t *testing.T) {
	run(t, &backend{}, config{MinInterval: time.Minute}, func(t *testing.T, r *reg) {
		<-resolve(t.Context(), r, "a")
		if a := <-resolve(t.Context(), r, "a"); !errors.Is(a.err, registry.ErrNotFound) || a.took != time.Minute {
			t.Errorf("Resolve = %+v", a)
		}
	})
}

func TestCloseEndsListsAndAdoptionsAndWaitsForThem(t *testing.T) {
	var cause error
	b := &backend{items: map[string]int{"a": 1}}
	cfg := config{Adopt: func(ctx context.Context, _ string, v int) (int, error) {
		<-ctx.Done()
		cause = context.Cause(ctx)
		time.Sleep(time.Second)
		return 0, ctx.Err()
	}}
	run(t, b, cfg, func(t *testing.T, r *reg) {
		fill(t, r, "c", 1)
		e := fill(t, r, "d", 1)
		h := take(t, r, "c")
		adopting := resolve(t.Context(), r, "a")
		b.mu.Lock()
		b.took = time.Hour
		b.mu.Unlock()
		listing := resolve(t.Context(), r, "b")
		begun := time.Now()
		closed := make(chan time.Duration)
		go func() { r.Close(); closed <- time.Since(begun) }()
		for name, ch := range map[string]<-chan answer{"adopting": adopting, "listing": listing, "later": resolve(t.Context(), r, "a")} {
			if a := <-ch; !errors.Is(a.err, registry.ErrUnavailable) || !errors.Is(a.err, fresh.ErrClosed) || !strings.HasPrefix(a.err.Error(), "registry: unavailable: ") {
				t.Errorf("%s: %+v", name, a)
			}
		}
		if took := <-closed; took != time.Second || cause != fresh.ErrClosed {
			t.Errorf("closed after %v, cancelled because of %v", took, cause)
		}
		if _, err := r.Hold("x"); err != fresh.ErrClosed {
			t.Errorf("Hold = %v", err)
		}
		if _, err := r.Sync(t.Context()); !errors.Is(err, fresh.ErrClosed) || !errors.Is(err, registry.ErrUnavailable) {
			t.Errorf("Sync = %v", err)
		}
		if got, ok := r.Lookup("d"); !ok || got != e {
			t.Errorf("Lookup = %+v, %v", got, ok)
		}
		if !h.Cancel() || !take(t, r, "d").Release() || r.Stats().Entries != 1 {
			t.Errorf("the holds that are out: %+v", r.Stats())
		}
		r.Close() // twice
	})
}

func TestTheEndOfTheBaseActsAsClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		var seen any
		base, end := context.WithCancel(context.WithValue(t.Context(), key{}, "base"))
		b := &backend{items: map[string]int{"a": 1}}
		r := registry.New(b.list, config{Base: base, Adopt: func(ctx context.Context, _ string, v int) (int, error) {
			seen = ctx.Value(key{})
			return v, nil
		}})
		if _, err := r.Resolve(context.WithValue(t.Context(), key{}, "caller"), "a"); err != nil || seen != "base" {
			t.Errorf("Resolve = %v, Adopt saw %v", err, seen)
		}
		end()
		synctest.Wait()
		if _, err := r.Hold("x"); err != fresh.ErrClosed {
			t.Errorf("Hold = %v", err)
		}
		if _, err := r.Resolve(t.Context(), "x"); !errors.Is(err, fresh.ErrClosed) {
			t.Errorf("Resolve = %v", err)
		}
		r.Close()
	})
}

// A list that came in before Close leads to no adoption after it.
func TestNoAdoptionBeginsAfterClose(t *testing.T) {
	b := &backend{items: map[string]int{"a": 1, "b": 2}}
	calls := 0
	var r *reg
	cfg := config{Adopt: func(ctx context.Context, _ string, v int) (int, error) {
		calls++
		go r.Close()
		<-ctx.Done()
		return v, nil
	}}
	run(t, b, cfg, func(t *testing.T, made *reg) {
		r = made
		rep, err := r.Sync(t.Context())
		if err != nil || rep.Failed == 0 || calls != 1 {
			t.Errorf("Sync = %+v, %v after %d adoptions", rep, err, calls)
		}
	})
}

func TestACallerWhoHasLeftIsToldSo(t *testing.T) {
	b := &backend{}
	run(t, b, config{}, func(t *testing.T, r *reg) {
		fill(t, r, "a", 1)
		ctx, leave := context.WithCancel(t.Context())
		leave()
		if _, err := r.Resolve(ctx, "x"); err != context.Canceled {
			t.Errorf("Resolve = %v", err)
		}
		if _, err := r.Refresh(ctx, "a"); err != context.Canceled {
			t.Errorf("Refresh = %v", err)
		}
		if _, err := r.Sync(ctx); err != context.Canceled {
			t.Errorf("Sync = %v", err)
		}
		if _, err := r.Resolve(ctx, "a"); err != nil || b.count() != 0 {
			t.Errorf("a hit needs no waiting: %v, %d lists", err, b.count())
		}
	})
}

func TestAKeyThatEqualsNothingIsNotHeld(t *testing.T) {
	r := registry.New(func(context.Context, []float64) (registry.Snapshot[float64, int], error) {
		return registry.Snapshot[float64, int]{Complete: true, Items: map[float64]int{math.NaN(): 1}}, nil
	}, registry.Config[float64, int]{})
	defer r.Close()
	func() {
		defer func() {
			if got := recover(); got != "registry: key NaN is not equal to itself" {
				t.Errorf("panicked with %v", got)
			}
		}()
		_, _ = r.Hold(math.NaN())
	}()
	if rep, err := r.Sync(t.Context()); err != nil || rep.Adopted != 0 || r.Stats().Held+r.Stats().Entries != 0 {
		t.Errorf("Sync = %+v, %v, %+v", rep, err, r.Stats())
	}
}

func TestMisusePanicsWithTheNameOfThePackage(t *testing.T) {
	list := (&backend{}).list
	for want, misuse := range map[string]func(){
		"registry: nil list": func() { registry.New[string, int](nil, config{}) },
		"registry: negative Budget -1ns, MinInterval 0s or Cap 0":  func() { registry.New(list, config{Budget: -1}) },
		"registry: negative Budget 0s, MinInterval -1ns or Cap 0":  func() { registry.New(list, config{MinInterval: -1}) },
		"registry: negative Budget 0s, MinInterval 0s or Cap -0.5": func() { registry.New(list, config{Cap: -0.5}) },
		"registry: negative Budget 0s, MinInterval 0s or Cap NaN":  func() { registry.New(list, config{Cap: math.NaN()}) },
	} {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("panicked with %v, want %q", got, want)
				}
			}()
			misuse()
		}()
	}
}
