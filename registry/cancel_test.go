package registry_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/registry"
)

// A create that is refused (a quota, a conflict) says nothing of an object that somebody else has made.
func TestACreateThatCameToNothingIsNoRemoval(t *testing.T) { // R1, R6
	for name, cfg := range map[string]config{"while_listed": {}, "while_adopted": {Adopt: slowly}} {
		for verb, look := range map[string]func(context.Context, *reg, string) <-chan answer{"Resolve": resolve, "Refresh": refresh} {
			t.Run(verb+"_"+name, func(t *testing.T) {
				b := &backend{items: map[string]int{"a": 1}}
				if cfg.Adopt == nil {
					b.took = time.Second
				}
				run(t, b, cfg, func(t *testing.T, r *reg) {
					looking := look(t.Context(), r, "a")
					holding(t, r, "a").Cancel()
					if s := r.Stats(); s.Tombstones != 1 {
						t.Errorf("while the list is on its way: %+v", s)
					}
					if a := <-looking; a.err != nil || a.entry.Value != 1 || a.took != 2*time.Second || b.count() != 2 {
						t.Errorf("got %+v after %d lists", a, b.count())
					}
				})
			})
		}
	}
}

func TestWhatAFailedCreateHasUndoneIsNotAdoptedFromAnOlderList(t *testing.T) { // R78
	b := &backend{took: time.Second, items: map[string]int{"a": 1}}
	run(t, b, config{}, func(t *testing.T, r *reg) {
		looking := resolve(t.Context(), r, "a")
		h := holding(t, r, "a")
		b.remove("a")
		h.Cancel()
		if a := <-looking; !errors.Is(a.err, registry.ErrNotFound) || r.Stats().Fenced != 1 || b.count() != 2 {
			t.Errorf("got %+v after %d lists, %+v", a, b.count(), r.Stats())
		}
		everything := syncing(t.Context(), r)
		b.set("a", 2)
		holding(t, r, "a").Cancel()
		if rep, err := everything(); err != nil || rep.Adopted != 0 || r.Stats().Entries != 0 {
			t.Errorf("Sync = %+v, %v", rep, err)
		}
	})
}

// What the create did is not known, and an incomplete list does not tell.
func TestAHoldThatCameToNothingLeavesNoAnswer(t *testing.T) { // R16
	b := &backend{took: time.Second, partial: true}
	run(t, b, config{}, func(t *testing.T, r *reg) {
		first := resolve(t.Context(), r, "x")
		everything, looking := syncing(t.Context(), r), resolve(t.Context(), r, "a")
		<-first
		holding(t, r, "a").Cancel()
		if a := <-looking; !errors.Is(a.err, registry.ErrUnavailable) || errors.Is(a.err, registry.ErrNotFound) {
			t.Errorf("got %+v", a)
		}
		if _, err := everything(); err != nil {
			t.Error(err)
		}
	})
}

// holding holds k, which is absent.
func holding(t *testing.T, r *reg, k string) *registry.Hold[string, int] {
	t.Helper()
	h, err := r.Hold(k)
	if err != nil {
		t.Fatalf("hold %s: %v", k, err)
	}
	return h
}
