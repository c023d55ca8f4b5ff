package sweep_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"pgregory.net/rapid"

	"github.com/keepwell-go/keepwell/sweep"
)

// Everything in the model happens at whole units, except that each kind of event has an offset of its own, so that no two
// come at once and there is one right answer: ticks have none, the test acts at half units, and so on.
const (
	unit  = 100 * time.Microsecond
	every = 10 * unit

	atSteps   = unit / 2
	atPauses  = unit / 4
	atLeaves  = unit / 8
	atEnds    = 1 * time.Nanosecond
	atBudgets = 10 * time.Nanosecond
)

// jumpy is the real clock of the bubble, wrong by an offset that jumps.
type jumpy struct {
	clock.Clock
	offset *time.Duration
}

func (j jumpy) Now() time.Time { return j.Clock.Now().Add(*j.offset) }

// behaviour is what one pass does.
type behaviour struct {
	takes time.Duration
	obeys bool // ends when its context does
	end   string
}

// pass is one pass in the model.
type pass struct {
	behaviour
	ends, budget time.Duration // since the start of the test
}

// loopModel is what a Loop ought to do: a simulation in one goroutine, event by event, of Run, its passes and its callers.
type loopModel struct {
	loop   *sweep.Loop
	logs   *observer.ObservedLogs
	origin time.Time
	offset time.Duration
	budget time.Duration
	plan   []behaviour // of one pass after the other, again and again
	real   []time.Duration
	gauge  int

	now, nextTick  time.Duration
	paused         time.Time // by the loop's clock
	nudged, closed bool
	running        *pass
	begun          []time.Duration
	skips          uint64
	warnings       int
	want           sweep.Stats
}

// pass is the pass of the loop under test.
func (m *loopModel) pass(ctx context.Context) error {
	if m.gauge++; m.gauge > 1 {
		panic("two passes at once")
	}
	defer func() { m.gauge-- }()
	b := m.plan[len(m.real)%len(m.plan)]
	m.real = append(m.real, time.Since(m.origin))
	if b.obeys {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(b.takes):
		}
	} else {
		time.Sleep(b.takes)
	}
	return map[string]func() error{"fine": fine, "fails": fails, "panics": panics, "exits": exits}[b.end]()
}

func newLoopModel(t *rapid.T) *loopModel {
	m := &loopModel{origin: time.Now(), nextTick: every}
	m.budget = time.Duration(rapid.IntRange(2, 30).Draw(t, "budget"))*unit + atBudgets
	for range 6 {
		m.plan = append(m.plan, behaviour{
			takes: time.Duration(rapid.IntRange(0, 40).Draw(t, "takes"))*unit + atEnds,
			obeys: rapid.Bool().Draw(t, "obeys"),
			end:   rapid.SampledFrom([]string{"fine", "fails", "panics", "exits"}).Draw(t, "end"),
		})
	}
	core, logs := observer.New(zapcore.WarnLevel)
	m.logs = logs
	m.loop = sweep.New(m.pass, sweep.Config{
		Every: every, Budget: m.budget, Logger: zap.New(core), Clock: jumpy{clock.New(), &m.offset},
	})
	return m
}

// shows returns what the loop's clock shows at d.
func (m *loopModel) shows(d time.Duration) time.Time { return m.origin.Add(d + m.offset) }

// until lets time go by in the bubble and in the model.
func (m *loopModel) until(d time.Duration) {
	time.Sleep(d - m.now)
	synctest.Wait()
	for {
		at, event := d+1, func() {}
		next := func(when time.Duration, do func()) {
			if when > m.now && when < at {
				at, event = when, do
			}
		}
		if !m.closed {
			next(m.nextTick, m.tick)
			if m.nudged && m.running == nil {
				next(m.paused.Sub(m.shows(0)), m.release)
			}
		}
		if m.running != nil {
			next(m.running.ends, m.end)
		}
		if at > d {
			m.now = d
			return
		}
		m.now = at
		event()
	}
}

func (m *loopModel) tick() {
	m.nextTick += every
	switch {
	case m.shows(m.now).Before(m.paused):
	case m.running != nil:
		m.want.Skipped++
		if m.skips++; m.skips&(m.skips-1) == 0 {
			m.warnings++
		}
	default:
		m.begin()
	}
}

// release starts the pass that was asked for, if nothing holds it any more.
func (m *loopModel) release() {
	if m.nudged && m.running == nil && !m.closed && !m.shows(m.now).Before(m.paused) {
		m.begin()
	}
}

func (m *loopModel) begin() {
	p := &pass{behaviour: m.plan[len(m.begun)%len(m.plan)], budget: m.now + m.budget}
	p.ends = m.now + p.takes
	if p.obeys && p.budget < p.ends {
		p.ends, p.end = p.budget, "fails"
	}
	m.running, m.nudged, m.skips = p, false, 0
	m.begun = append(m.begun, m.now)
	m.want.Passes++
	m.want.LastStart = m.shows(m.now)
}

func (m *loopModel) end() {
	switch m.running.behaviour.end {
	case "fails":
		m.want.Failed++
		m.warnings++
	case "panics", "exits":
		m.want.Panicked++
		m.warnings++
	}
	m.want.LastEnd = m.shows(m.now)
	m.running = nil
	m.release()
}

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
	m.offset += time.Duration(rapid.IntRange(-100, 100).Draw(t, "hours")) * time.Hour
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
	want := map[string]string{"fine": "<nil>", "fails": errPass.Error(), "panics": "sweep: pass panicked: " + errPass.Error(), "exits": "sweep: pass called runtime.Goexit"}[p.behaviour.end]
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
