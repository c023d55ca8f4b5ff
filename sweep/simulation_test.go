package sweep_test

import (
	"context"
	"sync/atomic"
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
	offset *atomic.Int64
}

func (j jumpy) Now() time.Time { return j.Clock.Now().Add(time.Duration(j.offset.Load())) }

// behaviour is what one pass does.
type behaviour struct {
	takes time.Duration
	obeys bool // ends when its context does
	end   string
}

// result is what TryRun says of a pass that ends as b.
func (b behaviour) result() string {
	switch b.end {
	case "fails":
		return errPass.Error()
	case "panics":
		return "sweep: pass panicked: " + errPass.Error()
	case "exits":
		return "sweep: pass called runtime.Goexit"
	}
	return "<nil>"
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
	offset atomic.Int64 // between the loop's clock and that of the bubble
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
func (m *loopModel) shows(d time.Duration) time.Time {
	return m.origin.Add(d + time.Duration(m.offset.Load()))
}

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
	switch m.running.end {
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
