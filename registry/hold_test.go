package registry_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/registry"
)

// held fails unless err says that k is held, destroying or not.
func held(t *testing.T, err error, k string, destroying bool) {
	t.Helper()
	var h *registry.HeldError
	if !errors.As(err, &h) || h.Key != k || h.Destroying != destroying || errors.Is(err, registry.ErrNotFound) || errors.Is(err, registry.ErrUnavailable) {
		t.Errorf("got %v, want that %s is held, destroying: %v", err, k, destroying)
	}
}

func TestAKeyBeingCreatedIsNotAskedFor(t *testing.T) { // R10
	b := &backend{items: map[string]int{"a": 1}}
	run(t, b, config{}, func(t *testing.T, r *reg) {
		h, err := r.Hold("a")
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Resolve(t.Context(), "a")
		held(t, err, "a", false)
		_, err = r.Refresh(t.Context(), "a")
		held(t, err, "a", false)
		if b.count() != 0 {
			t.Errorf("%d lists", b.count())
		}
		_, err = r.Hold("a")
		held(t, err, "a", false)
		_, err = r.Take("a")
		held(t, err, "a", false)
		if rep, err := r.Sync(t.Context()); err != nil || rep.Adopted != 0 || !rep.Has("a") || r.Stats().Held != 1 {
			t.Errorf("Sync = %+v, %v", rep, err)
		}
		if !h.Fill(2) || h.Entry() != (entry{}) {
			t.Errorf("Fill failed, or Entry = %+v", h.Entry())
		}
		if e, err := r.Resolve(t.Context(), "a"); err != nil || e.Value != 2 {
			t.Errorf("Resolve = %+v, %v", e, err)
		}
		if _, err := r.Hold("a"); !errors.Is(err, registry.ErrExists) || err.Error() != "registry: exists: a" {
			t.Errorf("Hold of what is registered: %v", err)
		}
	})
}

func TestAKeyBeingDestroyedIsNeitherListedNorAdopted(t *testing.T) { // R79
	b := &backend{items: map[string]int{"a": 1}}
	run(t, b, config{}, func(t *testing.T, r *reg) {
		e := fill(t, r, "a", 1)
		elapse(90 * time.Second)
		h := take(t, r, "a")
		h.Commit()
		if _, ok := r.Lookup("a"); ok || h.Entry() != e {
			t.Errorf("still visible, or took %+v instead of %+v", h.Entry(), e)
		}
		_, err := r.Resolve(t.Context(), "a")
		held(t, err, "a", true)
		if want := "registry: held: a is being destroyed, since 2000-01-01T00:01:30Z"; err.Error() != want {
			t.Errorf("it says %q, want %q", err, want)
		}
		_, err = r.Hold("a")
		held(t, err, "a", true)
		if b.count() != 0 {
			t.Errorf("%d lists", b.count())
		}
		if rep, err := r.Sync(t.Context()); err != nil || rep.Adopted != 0 || r.Stats().Entries != 0 {
			t.Errorf("Sync = %+v, %v", rep, err)
		}
		b.remove("a")
		h.Release()
		if _, err := r.Resolve(t.Context(), "a"); !errors.Is(err, registry.ErrNotFound) || b.count() != 2 {
			t.Errorf("afterwards: %v after %d lists", err, b.count())
		}
		if _, err := r.Take("a"); !errors.Is(err, registry.ErrNotFound) || err.Error() != "registry: not found: a" {
			t.Errorf("Take of what is not registered: %v", err)
		}
	})
}

func TestResolveWaitsForTheDecisionOfATake(t *testing.T) {
	for name, tt := range map[string]struct {
		decide func(*hold)
		check  func(*testing.T, answer)
		lists  int
	}{
		"cancel": {func(h *hold) { h.Cancel() }, func(t *testing.T, a answer) {
			if a.err != nil || a.entry.Value != 1 {
				t.Errorf("got %+v", a)
			}
		}, 0},
		"commit": {(*hold).Commit, func(t *testing.T, a answer) { held(t, a.err, "a", true) }, 0},
		"fill": {func(h *hold) { h.Fill(2) }, func(t *testing.T, a answer) {
			if a.err != nil || a.entry.Value != 2 {
				t.Errorf("got %+v", a)
			}
		}, 0},
		"release": {func(h *hold) { h.Release() }, func(t *testing.T, a answer) {
			if !errors.Is(a.err, registry.ErrNotFound) {
				t.Errorf("got %+v", a)
			}
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := &backend{}
			run(t, b, config{}, func(t *testing.T, r *reg) {
				fill(t, r, "a", 1)
				h := take(t, r, "a")
				impatient, leave := context.WithTimeout(t.Context(), time.Second)
				defer leave()
				one, two, gone := resolve(t.Context(), r, "a"), resolve(t.Context(), r, "a"), resolve(impatient, r, "a")
				if a := <-gone; a.err != context.DeadlineExceeded || a.took != time.Second {
					t.Errorf("one who could not wait: %+v", a)
				}
				tt.decide(h)
				tt.check(t, <-one)
				tt.check(t, <-two)
				if b.count() > 2*tt.lists || b.count() < tt.lists {
					t.Errorf("%d lists", b.count())
				}
				h.Cancel()
			})
		})
	}
}

func TestCancelPutsBackWhatWasTaken(t *testing.T) {
	j := &journal{}
	run(t, &backend{}, config{Observe: j.observe}, func(t *testing.T, r *reg) {
		e := fill(t, r, "a", 1)
		j.told()
		h := take(t, r, "a")
		h.Commit() // a teardown that failed
		if !h.Cancel() {
			t.Error("Cancel returned false")
		}
		if got, ok := r.Lookup("a"); !ok || got != e || len(j.told()) != 0 || r.Stats().Entries != 1 {
			t.Errorf("Lookup = %+v, %v; want %+v", got, ok, e)
		}
	})
}

func TestAHoldEndsOnce(t *testing.T) {
	ends := map[string]func(*hold) bool{
		"Fill":    func(h *hold) bool { return h.Fill(9) },
		"Release": (*hold).Release,
		"Cancel":  (*hold).Cancel,
	}
	for first, end := range ends {
		for second, again := range ends {
			t.Run(first+"_then_"+second, func(t *testing.T) {
				run(t, &backend{}, config{}, func(t *testing.T, r *reg) {
					fill(t, r, "a", 1)
					h := take(t, r, "a")
					if !end(h) {
						t.Errorf("%s returned false", first)
					}
					before := present(r)
					h.Commit()
					if again(h) {
						t.Errorf("%s returned true", second)
					}
					if after := present(r); len(after) != len(before) || after["a"] != before["a"] || r.Stats().Held != 0 {
						t.Errorf("%v became %v", before, after)
					}
				})
			})
		}
	}
}
