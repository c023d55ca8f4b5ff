package probe_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/keepwell-go/keepwell/probe"
)

// harness runs a probe beside its model.
type harness struct {
	model
	probe   *probe.Probe[int]
	callers []*caller
	endings chan func() (int, error)
	heeds   atomic.Bool // whether the next check heeds its context
	running atomic.Int64
}

func newHarness(rt *rapid.T) *harness {
	even := func(name string, min int) time.Duration {
		return 2 * time.Millisecond * time.Duration(rapid.IntRange(min, 20).Draw(rt, name))
	}
	h := &harness{endings: make(chan func() (int, error))}
	h.cfg = probe.Config{
		Budget: even("budget", 1), TTL: even("ttl", 1), FailureTTL: even("failure ttl", 1),
		Rise: rapid.IntRange(1, 3).Draw(rt, "rise"), Fall: rapid.IntRange(1, 3).Draw(rt, "fall"),
	}
	if rapid.Bool().Draw(rt, "keep nothing") {
		h.cfg.TTL = -1
	}
	h.ttl = -1
	h.probe = probe.New(h.check, h.cfg)
	return h
}

func (h *harness) check(ctx context.Context) (int, error) {
	if h.running.Add(1) > 1 {
		panic("two checks at once")
	}
	defer h.running.Add(-1)
	var over <-chan struct{}
	if h.heeds.Load() {
		over = ctx.Done()
	}
	select {
	case end := <-h.endings:
		return end()
	case <-over:
		return 0, fmt.Errorf("check: %w", context.Cause(ctx))
	}
}

func (h *harness) get(rt *rapid.T) {
	c := &caller{}
	ctx, cancel := context.WithCancel(context.Background())
	over := rapid.IntRange(0, 9).Draw(rt, "ctx over") == 0
	if over {
		cancel()
	} else if wait := rapid.IntRange(-10, 20).Draw(rt, "patience"); wait >= 0 {
		c.deadline = time.Now().Add(time.Duration(2*wait+1) * time.Millisecond)
		ctx, cancel = context.WithDeadline(context.Background(), c.deadline)
	}
	honours := h.drawHeeds(rt)
	h.callers = append(h.callers, c)
	h.model.get(c, over, honours)
	go func() {
		defer cancel()
		r, err := h.probe.Get(ctx)
		c.got.Store(&answer{r, err, time.Now()})
	}()
}

func (h *harness) drawHeeds(rt *rapid.T) bool {
	honours := rapid.Bool().Draw(rt, "next check heeds its context")
	h.heeds.Store(honours)
	return honours
}

func (h *harness) advance(rt *rapid.T) {
	until := time.Now().Add(2 * time.Millisecond * time.Duration(rapid.IntRange(1, 25).Draw(rt, "2ms")))
	for {
		now := h.next(until)
		time.Sleep(time.Until(now))
		h.happen(now)
		synctest.Wait()
		if now.Equal(until) {
			return
		}
	}
}

func (h *harness) finish(rt *rapid.T) {
	if !h.stats.Running {
		rt.Skip("no check is outstanding")
	}
	honours := h.drawHeeds(rt)
	value := rapid.IntRange(1, 9).Draw(rt, "value")
	switch rapid.SampledFrom([]string{"good", "bad", "panic", "goexit"}).Draw(rt, "ending") {
	case "good":
		h.model.finish(value, nil, honours)
		h.endings <- func() (int, error) { return value, nil }
	case "bad":
		h.model.finish(value, errSick, honours)
		h.endings <- func() (int, error) { return value, errSick }
	case "panic":
		h.model.finish(0, errSick, honours)
		h.endings <- func() (int, error) { panic(errSick) }
	case "goexit":
		h.model.finish(0, probe.ErrGoexit, honours)
		h.endings <- func() (int, error) { runtime.Goexit(); return 0, nil }
	}
}

func (h *harness) compare(rt *rapid.T) {
	synctest.Wait()
	for i, c := range h.callers {
		got := c.got.Load()
		switch {
		case got == nil && c.want.at.IsZero():
		case got == nil:
			rt.Fatalf("caller %d is waiting, want %+v", i, c.want)
		case !same(got.Result, c.want.Result) || got.err != c.want.err || !got.at.Equal(c.want.at):
			rt.Fatalf("caller %d got %+v, want %+v", i, *got, c.want)
		}
	}
	if got := h.probe.Peek(); !same(got, h.last) {
		rt.Fatalf("last is %+v, want %+v", got, h.last)
	}
	if got := h.probe.Stats(); got != h.stats {
		rt.Fatalf("stats %+v, want %+v", got, h.stats)
	}
	if n := h.running.Load(); n > 1 {
		rt.Fatalf("%d checks at once", n)
	}
}

func same(a, b probe.Result[int]) bool {
	return a.Value == b.Value && a.State == b.State && a.At.Equal(b.At) && a.Took == b.Took && errors.Is(a.Err, b.Err) && (a.Err == nil) == (b.Err == nil)
}

// close shuts the probe: those who wait are told at once, and Close returns when the check does.
func (h *harness) close(rt *rapid.T) {
	shut := make(chan struct{})
	go func() {
		h.probe.Close()
		close(shut)
	}()
	synctest.Wait()
	for _, c := range h.waiting {
		c.want = answer{h.last, probe.ErrClosed, time.Now()}
	}
	if h.stats.Running && !h.honours {
		select {
		case <-shut:
			rt.Fatalf("Close did not wait for the check")
		default:
		}
		h.endings <- func() (int, error) { return 1, nil }
	}
	synctest.Wait()
	h.stats.Running, h.stats.Wedged = false, false
	select {
	case <-shut:
	default:
		rt.Fatalf("Close is waiting, though no check is outstanding")
	}
	h.compare(rt)
	h.probe.Close()
	if r, err := h.probe.Get(context.Background()); !errors.Is(err, probe.ErrClosed) || !same(r, h.last) {
		rt.Fatalf("Get after Close: %+v, %v", r, err)
	}
}
