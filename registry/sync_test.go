package registry_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keepwell-go/keepwell/registry"
)

func TestSyncAdoptsWhatIsNewAndDropsWhatIsGone(t *testing.T) { // R14, R15
	j := &journal{}
	b := &backend{items: map[string]int{"a": 1, "b": 2}}
	run(t, b, config{Observe: j.observe, Grace: -1}, func(t *testing.T, r *reg) {
		rep, err := r.Sync(t.Context())
		if err != nil || rep.Adopted != 2 || rep.Dropped != 0 || !rep.Complete || !maps.Equal(rep.Items, b.items) || len(j.told()) != 2 {
			t.Errorf("first Sync = %+v, %v", rep, err)
		}
		rep, err = r.Sync(t.Context())
		if err != nil || rep.Adopted != 0 || rep.Dropped != 0 || len(j.told()) != 0 {
			t.Errorf("second Sync = %+v, %v", rep, err)
		}
		b.remove("a")
		b.set("c", 3)
		rep, err = r.Sync(t.Context())
		if err != nil || rep.Adopted != 1 || rep.Dropped != 1 || len(j.told()) != 2 {
			t.Errorf("third Sync = %+v, %v", rep, err)
		}
		if all := present(r); !maps.Equal(all, b.items) {
			t.Errorf("registered: %v, the backend has %v", all, b.items)
		}
		if s := r.Stats(); s.Adopted != 3 || s.Dropped != 1 || s.Entries != 2 {
			t.Errorf("Stats = %+v", s)
		}
	})
}

func TestAFailedListChangesNothing(t *testing.T) { // R13
	boom := errors.New("boom")
	b := &backend{fail: boom} // its answer looks complete, and comes with an error
	run(t, b, config{Grace: -1}, func(t *testing.T, r *reg) {
		fill(t, r, "a", 1)
		rep, err := r.Sync(t.Context())
		if !errors.Is(err, registry.ErrUnavailable) || !errors.Is(err, boom) || rep.Complete || rep.Dropped != 0 || rep.Has("a") || r.Stats().Entries != 1 {
			t.Errorf("Sync = %+v, %v", rep, err)
		}
	})
}

func TestTheReportKnowsWhatIsListedRegisteredOrInTransition(t *testing.T) {
	b := &backend{items: map[string]int{"declined": 1}}
	adopt := func(context.Context, string, int) (int, error) { return 0, registry.ErrNotAdoptable }
	run(t, b, config{Adopt: adopt}, func(t *testing.T, r *reg) {
		fill(t, r, "young", 1)
		fill(t, r, "stopping", 1)
		take(t, r, "stopping")
		if _, err := r.Hold("creating"); err != nil {
			t.Fatal(err)
		}
		rep, err := r.Sync(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fill(t, r, "younger", 1) // Has looks at this moment, not at that of the list
		for k, want := range map[string]bool{"declined": true, "young": true, "stopping": true, "creating": true, "younger": true, "x": false} {
			if rep.Has(k) != want {
				t.Errorf("Has(%s) = %v", k, !want)
			}
		}
	})
}

func TestYoungEntriesAreSpared(t *testing.T) { // R80
	for grace, want := range map[time.Duration]time.Duration{0: 30 * time.Second, time.Minute: time.Minute} {
		run(t, &backend{}, config{Grace: grace}, func(t *testing.T, r *reg) {
			e := fill(t, r, "a", 1)
			elapse(want - 1)
			take(t, r, "a").Cancel() // changes nothing about its age
			if rep, err := r.Sync(t.Context()); err != nil || rep.Dropped != 0 {
				t.Errorf("a young entry: Sync = %+v, %v", rep, err)
			}
			if got, err := r.Refresh(t.Context(), "a"); err != nil || got != e {
				t.Errorf("a young entry: Refresh = %+v, %v", got, err)
			}
			if s := r.Stats(); s.Fenced != 0 {
				t.Errorf("Stats = %+v", s)
			}
			elapse(time.Nanosecond)
			if rep, err := r.Sync(t.Context()); err != nil || rep.Dropped != 1 {
				t.Errorf("at its grace: Sync = %+v, %v", rep, err)
			}
		})
	}
}

func TestRefreshConfirmsOrDrops(t *testing.T) { // R17
	b := &backend{items: map[string]int{"a": 1}}
	run(t, b, config{}, func(t *testing.T, r *reg) {
		e, err := r.Resolve(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		elapse(time.Hour)
		if got, err := r.Refresh(t.Context(), "a"); err != nil || got != e || b.count() != 2 {
			t.Errorf("Refresh = %+v, %v after %d lists", got, err, b.count())
		}
		b.remove("a")
		if _, err := r.Refresh(t.Context(), "a"); !errors.Is(err, registry.ErrNotFound) || err.Error() != "registry: not found: a" {
			t.Errorf("Refresh = %v", err)
		}
		if s := r.Stats(); s.Entries != 0 || s.Dropped != 1 || s.Misses != 3 {
			t.Errorf("Stats = %+v", s)
		}
		b.set("b", 2)
		if got, err := r.Refresh(t.Context(), "b"); err != nil || got.Value != 2 {
			t.Errorf("Refresh of what is not registered = %+v, %v", got, err)
		}
	})
}

func TestInvalidateDropsThatVersionOnly(t *testing.T) { // R16, R85
	j := &journal{}
	run(t, &backend{}, config{Observe: j.observe}, func(t *testing.T, r *reg) {
		old := fill(t, r, "a", 1)
		take(t, r, "a").Release()
		e := fill(t, r, "a", 1)
		j.told()
		if r.Invalidate(old) || r.Invalidate(entry{Key: "x"}) || len(j.told()) != 0 {
			t.Error("a replacement was the victim")
		}
		h := take(t, r, "a")
		if r.Invalidate(e) {
			t.Error("dropped while it was held")
		}
		h.Cancel()
		if !r.Invalidate(e) {
			t.Error("not dropped")
		}
		if _, ok := r.Lookup("a"); ok || r.Stats().Dropped != 1 {
			t.Errorf("Stats = %+v", r.Stats())
		}
		if got := j.told(); len(got) != 1 || got[0] != (event{Entry: e}) {
			t.Errorf("told %+v", got)
		}
	})
}

func TestSyncDropsNothingAboveTheCap(t *testing.T) { // R90
	for _, tt := range []struct {
		cap                 float64
		known, absent, want int
	}{
		{0.1, 100, 10, 10},
		{0.1, 100, 11, 0},
		{0, 10, 5, 5}, // half
		{0, 10, 6, 0},
		{0, 1, 1, 1}, // rounded up
		{0, 3, 2, 2},
		{1, 10, 10, 10},
		{7, 10, 10, 10},
	} {
		t.Run(fmt.Sprintf("%v_%d_of_%d", tt.cap, tt.absent, tt.known), func(t *testing.T) {
			logs, seen := observer.New(zap.WarnLevel)
			b := &backend{items: map[string]int{"new": 0}}
			run(t, b, config{Cap: tt.cap, Grace: -1, Logger: zap.New(logs)}, func(t *testing.T, r *reg) {
				for i := range tt.known {
					k := fmt.Sprint(i)
					fill(t, r, k, i)
					if i >= tt.absent {
						b.set(k, i)
					}
				}
				rep, err := r.Sync(t.Context())
				if rep.Dropped != tt.want || r.Stats().Dropped != uint64(tt.want) || rep.Adopted != 1 {
					t.Errorf("Sync = %+v, %v", rep, err)
				}
				var over *registry.CapError
				switch {
				case tt.want == tt.absent && err != nil:
					t.Errorf("Sync = %v", err)
				case tt.want != tt.absent && (!errors.As(err, &over) || over.Absent != tt.absent || over.Known != tt.known || seen.Len() != 1):
					t.Errorf("Sync = %v, logged %v", err, seen.All())
				}
			})
		})
	}
	err := &registry.CapError{Absent: 11, Known: 100, Max: 10}
	if want := "registry: 11 of 100 entries are absent from the list, more than the cap of 10: none was dropped"; err.Error() != want {
		t.Errorf("it says %q, want %q", err, want)
	}
}

func TestSyncEndsWithItsCallerAndReportsSoFar(t *testing.T) { // R81
	b := &backend{items: map[string]int{"a": 1, "b": 2, "c": 3}}
	run(t, b, config{Adopt: slowly, Grace: -1}, func(t *testing.T, r *reg) {
		fill(t, r, "gone", 1)
		ctx, leave := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer leave()
		rep, err := r.Sync(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, registry.ErrUnavailable) || rep.Adopted != 1 || rep.Dropped != 1 {
			t.Errorf("Sync = %+v, %v", rep, err)
		}
		elapse(time.Minute) // what has begun is carried out
		if s := r.Stats(); s.Adopted != 2 {
			t.Errorf("Stats = %+v", s)
		}
	})
}

func TestOneBadObjectDoesNotStopASync(t *testing.T) { // R12, R82
	logs, seen := observer.New(zap.WarnLevel)
	b := &backend{items: map[string]int{"fails": 1, "panics": 2, "works": 3, "stopped": 4}}
	adopt := func(_ context.Context, k string, v int) (int, error) {
		switch k {
		case "fails":
			return 0, errors.New("boom")
		case "panics":
			panic("boom")
		case "stopped":
			return 0, stopped{}
		}
		return v, nil
	}
	run(t, b, config{Adopt: adopt, Logger: zap.New(logs)}, func(t *testing.T, r *reg) {
		rep, err := r.Sync(t.Context())
		if err != nil || rep.Adopted != 1 || rep.Failed != 2 || rep.Declined != 1 {
			t.Errorf("Sync = %+v, %v", rep, err)
		}
		if s := r.Stats(); s.AdoptFailed != 2 || s.Declined != 1 {
			t.Errorf("Stats = %+v", s)
		}
		synctest.Wait()
	})
	if seen.Len() != 2 || seen.FilterMessage("registry: adoption panicked").FilterField(zap.String("key", "panics")).Len() != 1 {
		t.Errorf("logged %v", seen.All())
	}
}

func TestAnEntryThatIsReplacedWhileSyncDropsIsSpared(t *testing.T) { // R80
	b := &backend{items: map[string]int{"x": 0}}
	var r *reg
	told := 0
	cfg := config{Grace: -1, Cap: 1, Observe: func(e event) {
		if told++; told == 3 { // the first of two to be dropped: replace the other meanwhile
			other := map[string]string{"a": "b", "b": "a"}[e.Key]
			h, err := r.Take(other)
			if err != nil {
				panic(err)
			}
			h.Cancel()
		}
	}}
	run(t, b, cfg, func(t *testing.T, made *reg) {
		r = made
		fill(t, r, "a", 1)
		fill(t, r, "b", 1)
		if rep, err := r.Sync(t.Context()); err != nil || rep.Dropped != 1 {
			t.Errorf("Sync = %+v, %v", rep, err)
		}
		if r.Stats().Entries != 2 { // the one that is left, and x
			t.Errorf("left: %v", present(r))
		}
	})
}
