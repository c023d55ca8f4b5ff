package sweep_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/keepwell-go/keepwell/sweep"
)

// The actions of the test upon the loop and its model, and what is compared after each.

func (m *loopModel) check(t *rapid.T) {
	synctest.Wait()
	if !slices.Equal(m.real, m.begun) {
		t.Fatalf("passes began at %v, want %v", m.real, m.begun)
	}
	got, want := m.loop.Stats(), m.want
	want.LastErr = got.LastErr
	if p := m.running; p != nil {
		want.Running = true
		want.Wedged = m.now >= p.budget
	}
	if !got.LastStart.Equal(want.LastStart) || !got.LastEnd.Equal(want.LastEnd) {
		t.Fatalf("last pass from %v to %v, want from %v to %v", got.LastStart, got.LastEnd, want.LastStart, want.LastEnd)
	}
	got.LastStart, got.LastEnd, want.LastStart, want.LastEnd = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	if got != want {
		t.Fatalf("stats\n%+v, want\n%+v", got, want)
	}
	if n := m.logs.Len(); n != m.warnings {
		t.Fatalf("%d warnings, want %d", n, m.warnings)
	}
}

func (m *loopModel) wait(t *rapid.T) {
	m.until(m.now + time.Duration(rapid.IntRange(1, 25).Draw(t, "units"))*unit)
}

func (m *loopModel) nudge(*rapid.T) {
	m.loop.Nudge()
	m.nudged = true
	m.release()
}

func (m *loopModel) pause(t *rapid.T) {
	m.paused = m.shows(m.now - atSteps + atPauses).Add(time.Duration(rapid.IntRange(-5, 40).Draw(t, "units")) * unit)
	m.loop.Pause(m.paused)
	m.release()
}

// jump makes the clock jump, without a pause that would be moved by it.
func (m *loopModel) jump(t *rapid.T) {
	m.paused = time.Time{}
	m.loop.Pause(m.paused)
	m.release()
	synctest.Wait()
	m.offset.Add(int64(rapid.IntRange(-100, 100).Draw(t, "hours")) * int64(time.Hour))
}

// try calls TryRun with a caller that may leave before the pass ends.
func (m *loopModel) try(t *rapid.T) {
	leaves := time.Duration(rapid.IntRange(1, 60).Draw(t, "units"))*unit + atLeaves
	ctx, cancel := context.WithTimeout(context.Background(), leaves)
	defer cancel()
	idle, paused := m.running == nil, m.shows(m.now).Before(m.paused)
	got := make(chan error, 1)
	go func() { got <- m.loop.TryRun(ctx) }()
	synctest.Wait()
	if !idle || paused {
		if err := <-got; !errors.Is(err, sweep.ErrRunning) || errors.Is(err, errPass) {
			t.Fatalf("TryRun = %v, want ErrRunning", err)
		}
		return
	}
	m.begin()
	p, from := m.running, m.now
	want := p.result()
	if p.obeys && p.ends == p.budget {
		want = context.DeadlineExceeded.Error()
	}
	if from+leaves < p.ends {
		want = context.DeadlineExceeded.Error()
	}
	m.until(min(p.ends, from+leaves)) // not at half units: no step until it is
	select {
	case err := <-got:
		if fmt.Sprint(err) != want {
			t.Fatalf("TryRun = %v, want %s", err, want)
		}
	default:
		t.Fatalf("TryRun has not returned, neither with the pass nor with its caller's context")
	}
	m.until((m.now/unit+1)*unit + atSteps)
}

// shut closes the loop, which takes as long as the pass that runs does not listen.
func (m *loopModel) shut(t *rapid.T, ran <-chan error) {
	ends := m.now
	if p := m.running; p != nil && !p.obeys {
		ends = p.ends
	} else if p != nil {
		p.ends, p.end = m.now, "fails"
	}
	m.closed = true
	m.loop.Close()
	if got := time.Since(m.origin); got != ends {
		t.Fatalf("Close returned at %v, want %v", got, ends)
	}
	if p := m.running; p != nil {
		if p.end == "fails" && m.now < p.budget { // told to end, and failing: not worth a warning
			m.warnings--
		}
		m.now = ends
		m.end()
	}
	if err := <-ran; !errors.Is(err, sweep.ErrClosed) {
		t.Fatalf("Run = %v, want ErrClosed", err)
	}
	if err := m.loop.TryRun(context.Background()); !errors.Is(err, sweep.ErrClosed) {
		t.Fatalf("TryRun = %v, want ErrClosed", err)
	}
	m.loop.Nudge()
	time.Sleep(3 * every)
	m.loop.Close()
	m.check(t)
}

// Whatever passes do and callers ask for, the loop does what the model does: each pass begins when it should, never two at
// once, and each tick is a pass, a counted skip, or lost in a pause. A bubble that ends has no goroutine left. // R41, R92
func TestTheLoopDoesWhatTheModelDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			m := newLoopModel(t)
			defer m.loop.Close() // so that a failure is not told as a deadlock
			ran := make(chan error, 1)
			go func() { ran <- m.loop.Run(context.Background()) }()
			m.until(atSteps)
			t.Repeat(map[string]func(*rapid.T){
				"wait": m.wait, "wait again": m.wait, "nudge": m.nudge, "pause": m.pause, "jump": m.jump, "try": m.try, "": m.check,
			})
			m.shut(t, ran)
		})
	})
}
