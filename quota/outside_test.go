package quota_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keepwell-go/keepwell/quota"
)

// telling is a clock that says when it is asked.
type telling struct {
	clock.Clock
	asked func()
}

func (c telling) Now() time.Time { c.asked(); return c.Clock.Now() }

func TestNothingIsCalledUnderTheLock(t *testing.T) {
	var l *ledger
	called := map[string]int{}
	outside := func(what string) {
		if called[what]++; !l.Unlocked() {
			t.Errorf("%s was called under the lock", what)
		}
	}
	core, _ := observer.New(zap.DebugLevel)
	log := zap.New(core, zap.Hooks(func(zapcore.Entry) error { outside("Logger"); return nil }))
	l = quota.New[string](quota.Config{Clock: telling{clock.New(), func() { outside("Clock") }}, Logger: log}, quota.Limit[claim]{
		Name:   "tenant",
		Key:    func(c claim) string { outside("Key"); return c.tenant },
		Cost:   func(claim) int64 { outside("Cost"); return 1 },
		MaxFor: func(string) int64 { outside("MaxFor"); return 1 },
	})
	tok := admitted(t, l, "a", claim{})
	tok.Live()
	tok.Stopping()
	tok.Cancel()
	l.Adopt("b", claim{}) // past the limit, which is logged
	l.Reconcile(quota.Snapshot[string]{Since: l.Mark(), Complete: true, Has: func(string) bool { outside("Has"); return false }})
	if want := "map[Clock:5 Cost:2 Has:2 Key:2 Logger:2 MaxFor:2]"; fmt.Sprint(called) != want {
		t.Errorf("called %v, want %s", called, want)
	}
}

// What Key and Cost say may change. A claim then gives back what it took, where it took it.
func TestAClaimGivesBackWhatItWasCharged(t *testing.T) {
	key, cost := "A", int64(3)
	l := newLedger(quota.Limit[claim]{
		Name: "memory", Max: 10,
		Key: func(claim) string { return key }, Cost: func(claim) int64 { return cost },
	})
	tok := admitted(t, l, "x", claim{})
	key, cost = "B", 5
	other := admitted(t, l, "y", claim{})
	used(t, l, "memory/A:3 memory/B:5")
	tok.Release()
	used(t, l, "memory/B:5")
	key, cost = "C", 7
	l.Adopt("y", claim{}) // is counted anew
	used(t, l, "memory/C:7")
	key, cost = "D", 9
	other.Release()
	used(t, l, "")
}

// Time is shown and decides nothing: what is older than what is a matter of order.
func TestAClockThatJumpsChangesNoDecision(t *testing.T) {
	mock := clock.NewMock()
	mock.Set(time.Unix(1e6, 0))
	l := quota.New[string](quota.Config{Clock: mock}, host(9))
	l.Adopt("old", claim{})
	mock.Set(time.Unix(0, 0))
	stopping := l.Adopt("stopping", claim{})
	stopping.Stopping()
	since := l.Mark()
	mock.Set(time.Unix(-1e6, 0))
	l.Adopt("new", claim{}) // after the list began, though the clock was set back
	mock.Set(time.Unix(1e9, 0))
	stopping.Cancel() // live again, much later
	frees(t, l, quota.Snapshot[string]{Since: since, Complete: true, Has: nothing}, "old")
	holders(t, l, "stopping  live since 1000000000, new  live since -1000000")
	frees(t, l, quota.Snapshot[string]{Since: l.Mark(), Complete: true, Has: nothing}, "stopping", "new")
}
