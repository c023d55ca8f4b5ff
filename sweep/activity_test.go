package sweep_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/sweep"
)

// idle fails the test unless a has been idle for want.
func idle(t *testing.T, a *sweep.Activity, want time.Duration) {
	t.Helper()
	if got := a.Idle(); got != want {
		t.Errorf("idle for %v, want %v", got, want)
	}
}

func TestIdleRunsFromTheEndOfTheLastWork(t *testing.T) { // R89
	mock := clock.NewMock()
	a := &sweep.Activity{Clock: mock, Start: mock.Now()}
	mock.Add(time.Minute)
	idle(t, a, time.Minute) // since creation

	first, second := a.Begin(), a.Begin()
	mock.Add(time.Hour)
	idle(t, a, 0) // a long request pins
	first(true)
	mock.Add(time.Minute)
	idle(t, a, 0)
	if a.Pins() != 1 {
		t.Errorf("%d pins, want 1", a.Pins())
	}
	second(true)
	idle(t, a, 0)
	mock.Add(time.Second)
	idle(t, a, time.Second)
}

func TestWorkThatWasNoActivityDoesNotRefresh(t *testing.T) { // R89
	mock := clock.NewMock()
	a := &sweep.Activity{Clock: mock, Start: mock.Now()}
	mock.Add(time.Minute)
	end := a.Begin()
	mock.Add(time.Minute)
	idle(t, a, 0)
	end(false) // a 502, a list, a probe
	idle(t, a, 2*time.Minute)
}

func TestOnlyTheFirstEndCounts(t *testing.T) {
	mock := clock.NewMock()
	a := &sweep.Activity{Clock: mock, Start: mock.Now()}
	first, second := a.Begin(), a.Begin()
	first(false)
	mock.Add(time.Minute)
	first(true)
	if a.Pins() != 1 {
		t.Errorf("%d pins, want 1", a.Pins())
	}
	second(false)
	idle(t, a, time.Minute)
}

func TestAnActivityWithoutStartCountsFromItsFirstUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, begun sweep.Activity
		time.Sleep(time.Hour)
		idle(t, &asked, 0)
		begun.Begin()(false)
		time.Sleep(time.Minute)
		idle(t, &asked, time.Minute)
		idle(t, &begun, time.Minute)
	})
}

func TestIdleIsNeverNegative(t *testing.T) {
	mock := clock.NewMock()
	mock.Add(time.Hour)
	a := &sweep.Activity{Clock: mock, Start: mock.Now().Add(time.Minute)}
	idle(t, a, 0)
	a.Begin()(true) // ends before its start, by this clock: does not make it idle longer
	mock.Add(time.Minute + time.Second)
	idle(t, a, time.Second)
}

// The boundary, through Judge: at the timeout it is kept, and a failed request a moment before does not help it. // R44, R89
func TestIdlenessMeetsTheTimeoutAtItsBoundary(t *testing.T) {
	mock := clock.NewMock()
	a := &sweep.Activity{Clock: mock, Start: mock.Now()}
	judge := func() sweep.Verdict {
		v, _ := sweep.Judge(sweep.Facts{Reachable: true, Busy: a.Pins() > 0, Idle: a.Idle(), IdleTimeout: time.Minute})
		return v
	}
	mock.Add(time.Minute)
	a.Begin()(false)
	if v := judge(); v != sweep.Keep {
		t.Errorf("at the timeout: %v", v)
	}
	mock.Add(time.Millisecond)
	if v := judge(); v != sweep.StopIdle {
		t.Errorf("past the timeout: %v", v)
	}
	end := a.Begin()
	if v := judge(); v != sweep.Keep {
		t.Errorf("in use: %v", v)
	}
	end(true)
	if v := judge(); v != sweep.Keep {
		t.Errorf("used a moment ago: %v", v)
	}
}

func TestPinsOfManyGoroutinesBalance(t *testing.T) {
	var a sweep.Activity
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for range 100 {
				end := a.Begin()
				if a.Pins() < 1 || a.Idle() != 0 {
					t.Error("idle while pinned")
				}
				end(i%2 == 0)
				end(true)
			}
		})
	}
	wg.Wait()
	if a.Pins() != 0 {
		t.Errorf("%d pins, want none", a.Pins())
	}
}
