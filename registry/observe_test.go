package registry_test

import (
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/registry"
	"github.com/keepwell-go/keepwell/registry/fresh"
)

func TestEventsOfAKeyAlternate(t *testing.T) {
	j := &journal{}
	b := &backend{items: map[string]int{"b": 2}}
	run(t, b, config{Observe: j.observe, Grace: -1}, func(t *testing.T, r *reg) {
		filled := fill(t, r, "a", 1)
		h := take(t, r, "a")
		h.Fill(10) // replaced in place
		replaced, _ := r.Lookup("a")
		take(t, r, "a").Release()
		adopted, err := r.Resolve(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		b.remove("b")
		if _, err := r.Refresh(t.Context(), "b"); !errors.Is(err, registry.ErrNotFound) {
			t.Fatal(err)
		}
		want := []event{
			{Entry: filled, Present: true, Local: true},
			{Entry: filled, Local: true},
			{Entry: replaced, Present: true, Local: true},
			{Entry: replaced, Local: true},
			{Entry: adopted, Present: true},
			{Entry: adopted},
		}
		if got := j.told(); !slices.Equal(got, want) {
			t.Errorf("told %+v, want %+v", got, want)
		}
		if filled.Version == replaced.Version || replaced.Version == adopted.Version {
			t.Errorf("versions %d, %d, %d", filled.Version, replaced.Version, adopted.Version)
		}
	})
}

func TestACreateThatCameToNothingTellsNothing(t *testing.T) {
	j := &journal{}
	run(t, &backend{}, config{Observe: j.observe}, func(t *testing.T, r *reg) {
		for _, end := range []func(*hold) bool{(*hold).Cancel, (*hold).Release} {
			h, err := r.Hold("a")
			if err != nil || !end(h) || len(j.told()) != 0 || r.Stats().Held != 0 || r.Stats().Entries != 0 {
				t.Errorf("Hold = %v, %+v", err, r.Stats())
			}
		}
	})
}

func TestAnEventIsToldWhileTheKeyIsInTransition(t *testing.T) {
	var r *reg
	cfg := config{Grace: -1, Observe: func(e event) {
		if !r.Unlocked() {
			panic("told under the lock")
		}
		_, visible := r.Lookup(e.Key)
		_, errHold := r.Hold(e.Key)
		_, errTake := r.Take(e.Key)
		var h *registry.HeldError
		if visible || !errors.As(errHold, &h) || !errors.As(errTake, &h) || h.Destroying {
			panic("the key is not in transition")
		}
		if _, err := r.Take("other"); e.Key != "other" && !errors.Is(err, registry.ErrNotFound) {
			panic("another key is in transition")
		}
	}}
	b := &backend{items: map[string]int{"b": 2}}
	run(t, b, cfg, func(t *testing.T, made *reg) {
		r = made
		fill(t, r, "a", 1)
		take(t, r, "a").Fill(2)
		take(t, r, "a").Release()
		if _, err := r.Resolve(t.Context(), "b"); err != nil {
			t.Error(err)
		}
		e, _ := r.Lookup("b")
		r.Invalidate(e)
	})
}

func TestAnAdditionThatTheObserverCannotTakeIsNotMade(t *testing.T) { // R82
	for name, fault := range map[string]func(){"panic": func() { panic("boom") }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			b, armed := &backend{items: map[string]int{"a": 1}}, true
			cfg := config{Observe: func(e event) {
				if armed && e.Present {
					fault()
				}
			}}
			run(t, b, cfg, func(t *testing.T, r *reg) {
				a := <-resolve(t.Context(), r, "a")
				if p, ok := a.panicked.(*fresh.PanicError); name == "panic" && (!ok || p.Value != "boom") || name == "goexit" && a.err != nil {
					t.Errorf("Resolve: %+v", a)
				}
				h, err := r.Hold("a")
				if err != nil {
					t.Fatal(err)
				}
				waits := resolve(t.Context(), r, "b")
				filling := ask(func() (entry, error) { h.Fill(2); return entry{}, errors.New("filled") })
				if a := <-filling; a.err != nil || name == "panic" && a.panicked != "boom" {
					t.Errorf("Fill: %+v", a)
				}
				<-waits
				_, err = r.Resolve(t.Context(), "a")
				held(t, err, "a", false) // the caller still has it
				armed = false
				if !h.Cancel() || r.Stats().Entries != 0 || r.Stats().Held != 0 {
					t.Errorf("Stats = %+v", r.Stats())
				}
				if _, err := r.Resolve(t.Context(), "a"); err != nil {
					t.Errorf("the next Resolve: %v", err)
				}
			})
		})
	}
}

func TestAFillThatFailsHasReplacedNothingAndWakesThoseWhoWait(t *testing.T) { // R82
	j := &journal{}
	armed := false
	cfg := config{Observe: func(e event) {
		if j.observe(e); armed && e.Present {
			elapse(time.Second)
			panic("boom")
		}
	}}
	run(t, &backend{}, cfg, func(t *testing.T, r *reg) {
		fill(t, r, "a", 1)
		h := take(t, r, "a")
		h.Commit()
		armed = true
		filling := ask(func() (entry, error) { h.Fill(2); return entry{}, nil })
		waits := resolve(t.Context(), r, "a")
		if a := <-filling; a.panicked != "boom" {
			t.Errorf("Fill: %+v", a)
		}
		a := <-waits
		held(t, a.err, "a", true)
		if a.took != time.Second {
			t.Errorf("woken after %v", a.took)
		}
		j.told()
		if !h.Cancel() || len(present(r)) != 0 || len(j.told()) != 0 {
			t.Errorf("what was told to be gone came back: %v", present(r)) // the old one had been reported as released
		}
	})
}

func TestARemovalIsMadeWhateverTheObserverDoes(t *testing.T) { // R82
	run(t, &backend{}, config{Observe: func(e event) {
		if !e.Present {
			panic("boom")
		}
	}}, func(t *testing.T, r *reg) {
		fill(t, r, "a", 1)
		h := take(t, r, "a")
		if a := <-ask(func() (entry, error) { h.Release(); return entry{}, nil }); a.panicked != "boom" {
			t.Errorf("Release: %+v", a)
		}
		e := fill(t, r, "b", 1)
		if a := <-ask(func() (entry, error) { r.Invalidate(e); return entry{}, nil }); a.panicked != "boom" {
			t.Errorf("Invalidate: %+v", a)
		}
		if s := r.Stats(); s.Entries != 0 || s.Held != 0 || s.Dropped != 1 {
			t.Errorf("Stats = %+v", s)
		}
	})
}

func TestWhileAnEventIsToldTheHoldCannotEndTwiceAndResolveWaits(t *testing.T) {
	run(t, &backend{}, config{Observe: func(event) { elapse(time.Second) }}, func(t *testing.T, r *reg) {
		h, err := r.Hold("a")
		if err != nil {
			t.Fatal(err)
		}
		filling := ask(func() (entry, error) { return entry{}, map[bool]error{false: errors.New("lost")}[h.Fill(1)] })
		if h.Fill(2) || h.Release() || h.Cancel() {
			t.Error("ended while it was being filled")
		}
		if a := <-resolve(t.Context(), r, "a"); a.err != nil || a.entry.Value != 1 || a.took != time.Second {
			t.Errorf("Resolve: %+v", a)
		}
		if a := <-filling; a.err != nil {
			t.Errorf("Fill: %+v", a)
		}
	})
}
