package registry_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keepwell-go/keepwell/registry"
)

// What is called may call back, and may take its time, while others use the registry.
func TestNothingOfTheCallersIsCalledUnderTheLock(t *testing.T) {
	var r *reg
	var mu sync.Mutex // guards the next two
	called, logged := map[string]bool{}, []string{}
	outside := func(what string) {
		mu.Lock()
		called[what] = true
		mu.Unlock()
		for range 1000 { // another may have it for a moment
			if r.Unlocked() {
				return
			}
			runtime.Gosched()
		}
		t.Errorf("%s was called under the lock", what)
	}
	core, _ := observer.New(zap.DebugLevel)
	log := zap.New(core, zap.Hooks(func(e zapcore.Entry) error {
		mu.Lock()
		logged = append(logged, e.Message)
		mu.Unlock()
		outside("Logger")
		return nil
	}))
	b := &backend{items: map[string]int{"good": 1, "bad": 2, "panics": 3, "late": 4}}
	list := func(ctx context.Context, keys []string) (snapshot, error) { outside("list"); return b.list(ctx, keys) }
	cfg := config{
		Logger: log, Grace: -1, Cap: 0.1, Budget: time.Second,
		Observe:  func(event) { outside("Observe") },
		Draining: func() bool { outside("Draining"); return false },
		Adopt: func(ctx context.Context, k string, v int) (int, error) {
			switch outside("Adopt"); k {
			case "bad":
				return 0, errors.New("no")
			case "panics":
				panic("no")
			case "late":
				<-ctx.Done()
			}
			return v, nil
		},
	}
	synctest.Test(t, func(t *testing.T) {
		r = registry.New(list, cfg)
		for i := range 20 {
			fill(t, r, fmt.Sprint(i), i)
		}
		_, err := r.Sync(t.Context())
		if _, capped := errors.AsType[*registry.CapError](err); !capped {
			t.Errorf("Sync = %v", err)
		}
		r.Close()
	})
	if len(called) != 5 || len(logged) != 4 {
		t.Errorf("called %v and logged %q; the test wants all of five and four", called, logged)
	}
}

func TestAHitTakesNoLockAndDoesNotAllocate(t *testing.T) {
	r := registry.New((&backend{}).list, config{})
	defer r.Close()
	fill(t, r, "a", 1)
	if got := testing.AllocsPerRun(100, func() { r.Lookup("a"); r.Lookup("b") }); got != 0 {
		t.Errorf("%v allocations", got)
	}
	found := make(chan bool, 1)
	r.WhileLocked(func() {
		go func() { _, ok := r.Lookup("a"); found <- ok }()
		for range 1_000_000 { // others that are ready run at once
			if runtime.Gosched(); len(found) > 0 {
				return
			}
		}
		t.Error("Lookup waits for the lock")
	})
	if !<-found {
		t.Error("not found")
	}
}

// An entry from the future is young, and one that has become old by a jump is still not dropped if it is listed.
func TestAClockThatJumpsDropsNothingThatIsThere(t *testing.T) { // R80
	mock := clock.NewMock()
	mock.Set(time.Unix(1e6, 0))
	b := &backend{items: map[string]int{"here": 1}}
	r := registry.New(b.list, config{Clock: mock, Cap: 1})
	defer r.Close()
	fill(t, r, "here", 1)
	fill(t, r, "absent", 1)
	for _, jump := range []struct {
		to      int64
		dropped int
	}{{0, 0}, {1e9, 1}, {-1e9, 0}} {
		mock.Set(time.Unix(jump.to, 0))
		if rep, err := r.Sync(t.Context()); err != nil || rep.Dropped != jump.dropped {
			t.Errorf("at %d: Sync = %+v, %v", jump.to, rep, err)
		}
		if _, ok := r.Lookup("here"); !ok {
			t.Errorf("at %d: what is there was dropped", jump.to)
		}
	}
}
