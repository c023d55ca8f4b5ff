package sweep_test

import (
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/sweep"
)

// overdue is far past everything, and answers.
var overdue = sweep.Facts{
	Reachable: true, Age: 100 * time.Hour, TTL: time.Hour, Idle: 100 * time.Hour, IdleTimeout: time.Minute,
}

// with returns f changed by change.
func with(f sweep.Facts, change func(*sweep.Facts)) sweep.Facts {
	change(&f)
	return f
}

// verdict fails the test unless f is judged as want, for the reason why.
func verdict(t *testing.T, name string, f sweep.Facts, want sweep.Verdict, why string) {
	t.Helper()
	if got, reason := sweep.Judge(f); got != want || reason != why {
		t.Errorf("%s: %v (%s), want %v (%s)", name, got, reason, want, why)
	}
}

func TestPinnedIsExemptFromIdleAndTTL(t *testing.T) { // R42
	pinned := with(overdue, func(f *sweep.Facts) { f.Pinned = true })
	verdict(t, "pinned, far past both", pinned, sweep.Keep, "pinned")
	fresh := with(pinned, func(f *sweep.Facts) { f.Pinned, f.Age, f.Idle = false, 0, 0 })
	verdict(t, "unpinned, with a fresh lifetime", fresh, sweep.Keep, "in use")
	verdict(t, "never pinned", overdue, sweep.StopExpired, "expired: age 100h0m0s is over the lifetime of 1h0m0s")
}

func TestABusyOrHeldObjectIsSparedIdleAndTTL(t *testing.T) { // R43, R64
	busy := with(overdue, func(f *sweep.Facts) { f.Busy = true })
	verdict(t, "busy by its runner, nothing known here", busy, sweep.Keep, "busy")
	verdict(t, "held", with(overdue, func(f *sweep.Facts) { f.Held = true }), sweep.Keep, "in transition")
	idle := with(overdue, func(f *sweep.Facts) { f.TTL = 0 })
	verdict(t, "its process was killed", idle, sweep.StopIdle, "idle: for 100h0m0s, over the timeout of 1m0s")
}

func TestIdleAndTTLAreStrict(t *testing.T) { // R44
	at := sweep.Facts{Reachable: true, Age: time.Hour, TTL: time.Hour, Idle: time.Minute, IdleTimeout: time.Minute}
	verdict(t, "at both", at, sweep.Keep, "in use")
	verdict(t, "1 ms past idle", with(at, func(f *sweep.Facts) { f.Idle += time.Millisecond }),
		sweep.StopIdle, "idle: for 1m0.001s, over the timeout of 1m0s")
	verdict(t, "1 ms past TTL", with(at, func(f *sweep.Facts) { f.Age += time.Millisecond }),
		sweep.StopExpired, "expired: age 1h0m0.001s is over the lifetime of 1h0m0s")
}

func TestTheLeastTimeoutIsATimeout(t *testing.T) {
	least := sweep.Facts{Reachable: true, Idle: 2, IdleTimeout: 1}
	verdict(t, "idle", least, sweep.StopIdle, "idle: for 2ns, over the timeout of 1ns")
	verdict(t, "expired", sweep.Facts{Age: 2, TTL: 1}, sweep.StopExpired, "expired: age 2ns is over the lifetime of 1ns")
}

func TestNoTimeoutMeansNever(t *testing.T) {
	for _, none := range []time.Duration{0, -1} {
		verdict(t, "no TTL, no timeout", with(overdue, func(f *sweep.Facts) { f.TTL, f.IdleTimeout = none, none }), sweep.Keep, "in use")
	}
}

func TestAnUnreachableObjectIsDroppedOnTheBackendsWordOnly(t *testing.T) { // R47
	lost := sweep.Facts{Age: time.Minute, TTL: time.Hour, Idle: 100 * time.Hour, IdleTimeout: time.Minute}
	const unknown = "unknown: its runner does not answer, so that only its lifetime counts"
	verdict(t, "exists or unknown", lost, sweep.Keep, unknown)
	verdict(t, "gone", with(lost, func(f *sweep.Facts) { f.Gone = true }), sweep.Drop,
		"gone: its runner does not answer and the backend has no such object")
	verdict(t, "exists and expired", with(lost, func(f *sweep.Facts) { f.Age = 2 * time.Hour }), sweep.StopExpired,
		"expired: age 2h0m0s is over the lifetime of 1h0m0s")
	verdict(t, "gone, but its runner answers", with(lost, func(f *sweep.Facts) { f.Gone, f.Reachable, f.IdleTimeout = true, true, 0 }),
		sweep.Keep, "in use")
	verdict(t, "nothing is known", sweep.Facts{}, sweep.Keep, unknown)
}

func TestAYoungObjectIsSpared(t *testing.T) { // R90
	young := sweep.Facts{Gone: true, Age: 29 * time.Second, Grace: 30 * time.Second}
	verdict(t, "young", young, sweep.Keep, "young: age 29s is less than the grace of 30s")
	verdict(t, "by a clock that is behind", with(young, func(f *sweep.Facts) { f.Age = -time.Hour }),
		sweep.Keep, "young: age -1h0m0s is less than the grace of 30s")
	verdict(t, "no longer", with(young, func(f *sweep.Facts) { f.Age = f.Grace }), sweep.Drop,
		"gone: its runner does not answer and the backend has no such object")
}

func TestVerdictsReadAsWords(t *testing.T) {
	for v, want := range map[sweep.Verdict]string{
		sweep.Keep: "keep", sweep.StopIdle: "stop, idle", sweep.StopExpired: "stop, expired", sweep.Drop: "drop", 9: "verdict 9",
	} {
		if v.String() != want {
			t.Errorf("%d reads %q, want %q", v, v, want)
		}
	}
}
