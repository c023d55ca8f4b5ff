package probe_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keepwell-go/keepwell/probe"
)

func TestNothingIsCalledUnderTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p *probe.Probe[int]
		var checks, logs atomic.Int64
		outside := func(what string) {
			for range 1000 { // another may have it for a moment
				if p.Unlocked() {
					return
				}
				runtime.Gosched()
			}
			t.Errorf("%s was called under the lock", what)
		}
		core, _ := observer.New(zap.DebugLevel)
		log := zap.New(core, zap.Hooks(func(zapcore.Entry) error { logs.Add(1); outside("Logger"); return nil }))
		hang := make(chan struct{})
		p = probe.New(func(context.Context) (int, error) {
			if outside("check"); checks.Add(1) > 1 {
				<-hang
			}
			return 7, nil
		}, probe.Config{TTL: -1, Budget: time.Second, Logger: log})
		defer p.Close()
		for range 2 {
			if _, err := p.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		close(hang)
		if checks.Load() != 2 || logs.Load() != 2 { // of a new state, and of a wedge
			t.Errorf("called %d checks and logged %d times, want 2 and 2", checks.Load(), logs.Load())
		}
	})
}

func TestAKeptResultTakesNoLockAndDoesNotAllocate(t *testing.T) {
	p := probe.New(ok, probe.Config{TTL: time.Hour})
	defer p.Close()
	get := func() bool {
		r, err := p.Get(context.Background())
		return err == nil && r.Value == 7 && p.Peek().Value == 7
	}
	if !get() {
		t.Fatal("no result")
	}
	if got := testing.AllocsPerRun(100, func() { get() }); got != 0 {
		t.Errorf("%v allocations", got)
	}
	answered := make(chan bool, 1)
	p.WhileLocked(func() {
		go func() { answered <- get() }()
		for range 1_000_000 { // others that are ready run at once
			if runtime.Gosched(); len(answered) > 0 {
				return
			}
		}
		t.Error("Get of a kept result waits for the lock")
	})
	if !<-answered {
		t.Error("no result")
	}
}

// A probe in a group may be slow, and the group must be of use meanwhile.
func TestAGroupMayBeAddedToWhileItAsks(t *testing.T) {
	var g probe.Group
	var asked atomic.Bool
	added := make(chan bool, 1)
	g.Add("slow", true, fixed(func(context.Context) (s probe.Status, err error) {
		if asked.Swap(true) {
			return s, err
		}
		go func() { g.Add("late", false, in(probe.Up, nil)); added <- true }()
		for range 1_000_000 { // others that are ready run at once
			if runtime.Gosched(); len(added) > 0 {
				return s, err
			}
		}
		t.Error("Add waits for a probe that is being asked")
		return s, err
	}))
	if all, _ := g.Check(t.Context()); len(all) != 1 {
		t.Errorf("the check that was under way has %d probes, want 1", len(all))
	}
	<-added
	if all, _ := g.Check(t.Context()); len(all) != 2 {
		t.Errorf("the next check has %d probes, want 2", len(all))
	}
}
