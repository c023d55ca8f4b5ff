package probe_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keepwell-go/keepwell/probe"
)

// TestProbeAgreesWithItsModel lets callers come, leave and find the door shut while checks end in every way, late ones included, and
// compares each answer and its moment with a model that is too small to be wrong in the same way. R38, R39, R40, R92, R93
func TestProbeAgreesWithItsModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rapid.SyncTest(rt, func(rt *rapid.T) {
			h := newHarness(rt)
			rt.Repeat(map[string]func(*rapid.T){
				"get":     h.get,
				"advance": h.advance,
				"finish":  h.finish,
				"":        h.compare,
			})
			h.close(rt)
		})
	})
}

// model is what a probe should be like. All its times are even numbers of milliseconds, except for callers' deadlines, which are odd: so
// no two of its events fall together.
type model struct {
	cfg     probe.Config
	last    probe.Result[int]
	ttl     time.Duration // of last; negative: none
	streak  int
	stats   probe.Stats
	flight  *flight // the measurement being made
	waiting []*caller
	honours bool // the outstanding check, if stats.Running, heeds its context
}

type flight struct {
	start   time.Time
	started bool // its check was started, rather than kept out by an older one
}

type caller struct {
	deadline time.Time // zero: none
	leads    bool
	want     answer
	got      atomic.Pointer[answer]
}

type answer struct {
	probe.Result[int]
	err error
	at  time.Time
}

func (m *model) get(c *caller, over bool, honours bool) {
	now := time.Now()
	age := now.Sub(m.last.At)
	switch {
	case m.ttl >= 0 && age < m.ttl:
		m.stats.Cached++
		c.want = answer{m.last, nil, now}
		return
	case over:
		c.want = answer{m.last, context.Canceled, now}
		return
	}
	if m.flight == nil {
		c.leads = true
		m.flight = &flight{start: now}
		m.start(honours)
	}
	m.waiting = append(m.waiting, c)
}

// start starts the check of the flight unless one is outstanding.
func (m *model) start(honours bool) {
	if m.flight == nil || m.stats.Running {
		return
	}
	m.flight.started = true
	m.stats.Checks++
	m.stats.Running, m.honours = true, honours
}

// next is the moment of what happens next by itself, if that is not after until.
func (m *model) next(until time.Time) time.Time {
	if m.flight != nil && !m.flight.start.Add(m.cfg.Budget).After(until) {
		until = m.flight.start.Add(m.cfg.Budget)
	}
	for _, c := range m.waiting {
		if !c.deadline.IsZero() && c.deadline.Before(until) {
			until = c.deadline
		}
	}
	return until
}

func (m *model) happen(now time.Time) {
	still := m.waiting[:0]
	for _, c := range m.waiting {
		if c.deadline.Equal(now) {
			c.want = answer{m.last, context.DeadlineExceeded, now}
		} else {
			still = append(still, c)
		}
	}
	m.waiting = still
	if m.flight == nil || !m.flight.start.Add(m.cfg.Budget).Equal(now) {
		return
	}
	if m.flight.started && m.honours {
		m.stats.Running = false
	}
	m.stats.Wedged = m.stats.Running
	m.settle(now, 0, probe.ErrBudget)
}

// finish ends the outstanding check.
func (m *model) finish(value int, err error, honours bool) {
	m.stats.Running, m.stats.Wedged = false, false
	if m.flight != nil && m.flight.started {
		m.settle(time.Now(), value, err)
	} else {
		m.start(honours) // what an old one returns is of no interest
	}
}

func (m *model) settle(now time.Time, value int, err error) {
	m.ttl = m.cfg.TTL
	if err == nil {
		m.streak = max(m.streak, 0) + 1
	} else {
		m.ttl = m.cfg.FailureTTL
		m.stats.Failed++
		m.streak = min(m.streak, 0) - 1
	}
	m.last = probe.Result[int]{Value: value, Status: probe.Status{State: m.last.State, Err: err, At: now, Took: now.Sub(m.flight.start)}}
	if m.streak >= m.cfg.Rise {
		m.last.State = probe.Up
	} else if m.streak <= -m.cfg.Fall {
		m.last.State = probe.Down
	}
	for _, c := range m.waiting {
		c.want = answer{m.last, nil, now}
		if !c.leads {
			m.stats.Joined++
		}
	}
	m.waiting, m.flight = nil, nil
}
