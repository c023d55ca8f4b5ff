package registry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwell-go/keepwell/registry"
)

// slowly adopts as listed, a second later.
func slowly(_ context.Context, _ string, v int) (int, error) {
	elapse(time.Second)
	return v, nil
}

func TestAnAdoptionDoesNotOverwriteALiveEntry(t *testing.T) { // R11
	j := &journal{}
	b := &backend{items: map[string]int{"a": 1}}
	run(t, b, config{Adopt: slowly, Observe: j.observe}, func(t *testing.T, r *reg) {
		adopting := resolve(t.Context(), r, "a")
		e := fill(t, r, "a", 2) // a create overtakes the adoption
		if a := <-adopting; a.err != nil || a.entry != e {
			t.Errorf("Resolve = %+v, want what was filled, %+v", a, e)
		}
		if got, _ := r.Lookup("a"); got != e || len(j.told()) != 1 || r.Stats().Fenced != 1 {
			t.Errorf("registered: %+v, %+v", got, r.Stats())
		}
	})
}

func TestAnAdoptionYieldsToAHold(t *testing.T) { // R11
	b := &backend{items: map[string]int{"a": 1}}
	run(t, b, config{Adopt: slowly}, func(t *testing.T, r *reg) {
		adopting := resolve(t.Context(), r, "a")
		h, err := r.Hold("a")
		if err != nil {
			t.Fatal(err)
		}
		held(t, (<-adopting).err, "a", false)
		h.Fill(2)
		if e, _ := r.Lookup("a"); e.Value != 2 {
			t.Errorf("registered: %+v", e)
		}
	})
}

func TestADestroyedKeyIsNotResurrectedByAnOlderList(t *testing.T) { // R78
	for name, look := range map[string]func(r *reg) error{
		"Sync":    func(r *reg) error { _, err := r.Sync(context.Background()); return err },
		"Refresh": func(r *reg) error { _, err := r.Refresh(context.Background(), "b"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			b := &backend{took: time.Second, items: map[string]int{"a": 1, "b": 2}}
			run(t, b, config{}, func(t *testing.T, r *reg) {
				fill(t, r, "a", 1)
				fill(t, r, "b", 2)
				looking := ask(func() (entry, error) { return entry{}, look(r) })
				for _, k := range []string{"a", "b"} {
					h := take(t, r, k)
					h.Commit()
					b.remove(k)
					h.Release()
				}
				if s := r.Stats(); s.Tombstones != 2 {
					t.Errorf("while the list is on its way: %+v", s)
				}
				if a := <-looking; name == "Sync" && a.err != nil || name == "Refresh" && !errors.Is(a.err, registry.ErrNotFound) {
					t.Errorf("got %+v", a)
				}
				if all := present(r); len(all) != 0 {
					t.Errorf("%v came back", all)
				}
				if s := r.Stats(); s.Fenced != map[string]uint64{"Sync": 2, "Refresh": 1}[name] || s.Lists.Runs != 1 {
					t.Errorf("Stats = %+v", s)
				}
			})
		})
	}
}

// A list outlives its own run for as long as what it led to is being adopted, and several younger lists by then.
func TestALateAdoptionDoesNotResurrect(t *testing.T) { // R78
	b := &backend{items: map[string]int{"a": 1}}
	run(t, b, config{Adopt: slowly}, func(t *testing.T, r *reg) {
		adopting := resolve(t.Context(), r, "a")
		h, err := r.Hold("a")
		if err != nil {
			t.Fatal(err)
		}
		h.Fill(2)
		b.remove("a")
		take(t, r, "a").Release()
		for range 3 { // younger lists come and go
			if a := <-resolve(t.Context(), r, "b"); !errors.Is(a.err, registry.ErrNotFound) {
				t.Errorf("meanwhile: %+v", a)
			}
		}
		if s := r.Stats(); s.Tombstones != 1 {
			t.Errorf("while the adoption goes on: %+v", s)
		}
		if a := <-adopting; !errors.Is(a.err, registry.ErrNotFound) || r.Stats().Entries != 0 {
			t.Errorf("got %+v, %v is back", a, present(r))
		}
	})
}

func TestADropIsAFenceToo(t *testing.T) { // R78
	b := &backend{took: time.Second, items: map[string]int{"a": 1}}
	run(t, b, config{}, func(t *testing.T, r *reg) {
		e := fill(t, r, "a", 1)
		looking := refresh(t.Context(), r, "a")
		r.Invalidate(e)
		if a := <-looking; !errors.Is(a.err, registry.ErrNotFound) {
			t.Errorf("Refresh = %+v", a)
		}
		if a := <-resolve(t.Context(), r, "a"); a.err != nil {
			t.Errorf("a younger list: %+v", a)
		}
	})
}

func TestTombstonesAreKeptForTheOldestReaderOnly(t *testing.T) {
	b := &backend{}
	adopt := func(_ context.Context, k string, v int) (int, error) {
		elapse(time.Duration(v) * time.Second)
		return v, nil
	}
	run(t, b, config{Adopt: adopt}, func(t *testing.T, r *reg) {
		b.set("slow", 10)
		slow := resolve(t.Context(), r, "slow")
		fill(t, r, "a", 1)
		take(t, r, "a").Release()
		b.set("slower", 14)
		slower := resolve(t.Context(), r, "slower")
		fill(t, r, "b", 1)
		take(t, r, "b").Release()
		fill(t, r, "a", 1)
		take(t, r, "a").Release() // again: younger than both
		if s := r.Stats(); s.Tombstones != 2 {
			t.Errorf("two removed: %+v", s)
		}
		fill(t, r, "a", 1)
		<-slow
		if s := r.Stats(); s.Tombstones != 2 {
			t.Errorf("for the younger reader: %+v", s)
		}
		fill(t, r, "c", 1)
		take(t, r, "c").Release()
		<-slower
		synctest.Wait()
		if s := r.Stats(); s.Tombstones != 0 {
			t.Errorf("when all have read: %+v", s)
		}
	})
}

func TestAnOldTombstoneGoesBeforeAYoungerReader(t *testing.T) {
	b := &backend{items: map[string]int{"slow": 1, "slower": 2}}
	adopt := func(_ context.Context, k string, v int) (int, error) {
		elapse(time.Duration(v) * time.Second)
		return v, nil
	}
	run(t, b, config{Adopt: adopt}, func(t *testing.T, r *reg) {
		slow := resolve(t.Context(), r, "slow")
		fill(t, r, "a", 1)
		take(t, r, "a").Release()
		slower := resolve(t.Context(), r, "slower")
		<-slow
		synctest.Wait()
		if s := r.Stats(); s.Tombstones != 0 {
			t.Errorf("one reader is left, and it is younger: %+v", s)
		}
		<-slower
	})
}

func TestAYoungerListTriesAgainWhatAnOlderOneDeclined(t *testing.T) { // R6
	b := &backend{items: map[string]int{"a": 0}}
	adopt := func(_ context.Context, _ string, v int) (int, error) {
		elapse(time.Second)
		if v == 0 {
			return 0, stopped{}
		}
		return v, nil
	}
	run(t, b, config{Adopt: adopt}, func(t *testing.T, r *reg) {
		early := resolve(t.Context(), r, "a")
		shares := resolve(t.Context(), r, "a") // its own list, but the same object
		b.set("a", 1)                          // started meanwhile
		late := resolve(t.Context(), r, "a")
		if a := <-early; !errors.Is(a.err, registry.ErrNotAdoptable) || a.took != time.Second {
			t.Errorf("early: %+v", a)
		}
		if a := <-late; a.err != nil || a.entry.Value != 1 || a.took < 2*time.Second {
			t.Errorf("late: %+v", a)
		}
		<-shares
	})
}

func TestWhatIsAdoptedAtTheSameTimeIsAdoptedOnce(t *testing.T) { // R15
	j := &journal{}
	calls := 0
	b := &backend{items: map[string]int{"a": 1}}
	cfg := config{Observe: j.observe, Adopt: func(ctx context.Context, k string, v int) (int, error) {
		calls++
		return slowly(ctx, k, v)
	}}
	run(t, b, cfg, func(t *testing.T, r *reg) {
		one, two, three := resolve(t.Context(), r, "a"), syncing(t.Context(), r), resolve(t.Context(), r, "a")
		if a, c := <-one, <-three; a.err != nil || a != c {
			t.Errorf("got %+v and %+v", a, c)
		}
		if rep, err := two(); err != nil || rep.Adopted+rep.Failed+rep.Declined != 0 {
			t.Errorf("Sync = %+v, %v", rep, err)
		}
		if calls != 1 || len(j.told()) != 1 {
			t.Errorf("%d calls of Adopt", calls)
		}
	})
}

func TestAbsenceCountsOnlyIfTheListCanTell(t *testing.T) { // R16, R80
	b := &backend{partial: true}
	run(t, b, config{Grace: -1}, func(t *testing.T, r *reg) {
		e := fill(t, r, "a", 1)
		rep, err := r.Sync(t.Context())
		if err != nil || rep.Dropped != 0 || rep.Complete || r.Stats().Entries != 1 {
			t.Errorf("an incomplete list: %+v, %v", rep, err)
		}
		// Asked for by name, an incomplete list is an answer.
		if _, err := r.Resolve(t.Context(), "b"); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("Resolve = %v", err)
		}
		if _, err := r.Refresh(t.Context(), "a"); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("Refresh = %v", err)
		}
		if r.Invalidate(e) {
			t.Error("dropped twice")
		}
	})
}

func TestASharedListOfEverythingThatIsIncompleteProvesNothing(t *testing.T) { // R16, R80
	b := &backend{took: time.Second, partial: true}
	run(t, b, config{Grace: -1}, func(t *testing.T, r *reg) {
		fill(t, r, "a", 1)
		first := resolve(t.Context(), r, "x")
		everything := syncing(t.Context(), r)
		missing, kept := resolve(t.Context(), r, "b"), refresh(t.Context(), r, "a")
		<-first
		a := <-missing
		if !errors.Is(a.err, registry.ErrUnavailable) || errors.Is(a.err, registry.ErrNotFound) || a.err.Error() != "registry: unavailable: b is not in the list, which was incomplete" {
			t.Errorf("Resolve = %+v", a)
		}
		if a := <-kept; !errors.Is(a.err, registry.ErrUnavailable) {
			t.Errorf("Refresh = %+v", a)
		}
		if rep, err := everything(); err != nil || rep.Dropped != 0 || r.Stats().Entries != 1 {
			t.Errorf("Sync = %+v, %v", rep, err)
		}
	})
}

func TestAbsenceFromAnOlderListDropsNothing(t *testing.T) { // R80
	for name, write := range map[string]func(t *testing.T, r *reg){
		"filled": func(t *testing.T, r *reg) { fill(t, r, "a", 1) },
		"put_back": func(t *testing.T, r *reg) {
			take(t, r, "a").Cancel()
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, &backend{took: time.Second}, config{Grace: -1}, func(t *testing.T, r *reg) {
				if name == "put_back" {
					fill(t, r, "a", 1)
				}
				everything, one := syncing(t.Context(), r), refresh(t.Context(), r, "x")
				write(t, r)
				if rep, err := everything(); err != nil || rep.Dropped != 0 || r.Stats().Fenced != 1 {
					t.Errorf("Sync = %+v, %v, %+v", rep, err, r.Stats())
				}
				<-one
				if len(present(r)) != 1 {
					t.Error("a is gone")
				}
			})
		})
	}
}
