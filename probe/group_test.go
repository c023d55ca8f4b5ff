package probe_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwell-go/keepwell/probe"
)

// fixed is a probe of a known status.
type fixed func(context.Context) (probe.Status, error)

func (f fixed) Status(ctx context.Context) (probe.Status, error) { return f(ctx) }

func in(s probe.State, err error) fixed {
	return func(context.Context) (probe.Status, error) { return probe.Status{State: s, Err: err}, nil }
}

// unreachable was in state s when it was last asked, and does not answer now.
func unreachable(s probe.State) fixed {
	return func(ctx context.Context) (probe.Status, error) {
		<-ctx.Done()
		return probe.Status{State: s}, ctx.Err()
	}
}

func TestOnlyARequiredProbeThatIsDownMakesAGroupUnwell(t *testing.T) {
	type members map[string]struct {
		required bool
		probe    fixed
	}
	for _, c := range []struct {
		name   string
		m      members
		ok     bool
		status string
	}{
		{"empty", nil, true, "up"},
		{"up", members{"a": {true, in(probe.Up, nil)}, "b": {false, in(probe.Up, nil)}}, true, "up"},
		{"optional_down", members{"a": {true, in(probe.Up, nil)}, "b": {false, in(probe.Down, errSick)}}, true, "up"},
		{"optional_unknown", members{"a": {true, in(probe.Up, nil)}, "b": {false, in(probe.Unknown, nil)}}, true, "up"},
		{"required_failing_but_up", members{"a": {true, in(probe.Up, errSick)}}, true, "up"},
		{"required_unknown", members{"a": {true, in(probe.Unknown, errSick)}}, true, "unknown"}, // R93
		{"required_down", members{"a": {true, in(probe.Down, errSick)}, "b": {true, in(probe.Unknown, nil)}}, false, "down"},
		{"required_down_beside_up", members{"a": {true, in(probe.Up, nil)}, "b": {true, in(probe.Down, errSick)}, "c": {true, in(probe.Up, nil)}}, false, "down"},
		{"optional_unreachable", members{"b": {false, unreachable(probe.Down)}}, true, "up"},
		{"required_unreachable_never_known", members{"a": {true, unreachable(probe.Unknown)}}, true, "unknown"},
		{"required_unreachable_was_up", members{"a": {true, unreachable(probe.Up)}}, true, "up"},
		{"required_unreachable_was_down", members{"a": {true, unreachable(probe.Down)}}, false, "down"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g probe.Group
				for name, m := range c.m {
					g.Add(name, m.required, m.probe)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				all, ok := g.Check(ctx)
				if ok != c.ok || len(all) != len(c.m) {
					t.Errorf("ok = %t with %v, want %t", ok, all, c.ok)
				}
				w := httptest.NewRecorder()
				g.Handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/health", nil))
				var got struct{ Status string }
				if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Status != c.status || (w.Code == 200) != c.ok || (w.Code == 503) == c.ok {
					t.Errorf("answered %d %s (%v), want %q", w.Code, w.Body, err, c.status)
				}
			})
		})
	}
}

func TestAGroupTellsWhyAProbeCouldNotBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := probe.New(ok, probe.Config{})
		closed.Close()
		var g probe.Group
		g.Add("slow", true, unreachable(probe.Up))
		g.Add("closed", true, closed)
		g.Add("panics", true, fixed(func(context.Context) (probe.Status, error) { panic(errSick) }))
		g.Add("exits", true, fixed(func(context.Context) (probe.Status, error) { runtime.Goexit(); return probe.Status{}, nil }))
		g.Add("fails", true, in(probe.Up, errSick))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		all, ok := g.Check(ctx)
		if !ok {
			t.Error("what is not known was taken for Down")
		}
		for name, want := range map[string]error{
			"slow": context.DeadlineExceeded, "closed": probe.ErrClosed, "panics": errSick, "exits": probe.ErrGoexit, "fails": errSick,
		} {
			if got := all[name].Err; !errors.Is(got, want) {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		}
		if _, ok := errors.AsType[*probe.PanicError](all["panics"].Err); !ok {
			t.Errorf("panics: %T", all["panics"].Err)
		}
		if got := all["slow"].State; got != probe.Up {
			t.Errorf("slow was up and became %v by not being asked", got)
		}
	})
}

func TestAGroupAsksAllAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g probe.Group
		for _, name := range []string{"a", "b", "c"} {
			p := probe.New(func(context.Context) (string, error) {
				time.Sleep(time.Second)
				return name, nil
			}, probe.Config{})
			defer p.Close()
			g.Add(name, true, p)
		}
		start := time.Now()
		all, ok := g.Check(t.Context())
		if took := time.Since(start); took != time.Second || !ok || len(all) != 3 || all["b"].State != probe.Up {
			t.Errorf("%v, %t after %v", all, ok, took)
		}
	})
}

func TestTheHandlersJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g probe.Group
		at := time.UnixMilli(1700000000123)
		g.Add("db", true, fixed(func(context.Context) (probe.Status, error) {
			return probe.Status{State: probe.Down, Err: errSick, At: at, Took: 1500 * time.Microsecond}, nil
		}))
		g.Add("cache", false, in(probe.Unknown, nil))
		g.Add("queue", true, fixed(func(context.Context) (probe.Status, error) { return probe.Status{State: probe.Up, At: at}, nil }))
		w := httptest.NewRecorder()
		g.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/health", nil))
		res := w.Result()
		body, _ := io.ReadAll(res.Body)
		want := `{"status":"down","probes":{"cache":{"state":"unknown","required":false},` +
			`"db":{"state":"down","required":true,"error":"sick","at_ms":1700000000123,"took_ms":1},` +
			`"queue":{"state":"up","required":true,"at_ms":1700000000123,"took_ms":0}}}` + "\n"
		if res.StatusCode != 503 || string(body) != want {
			t.Errorf("answered %d\n%swant 503\n%s", res.StatusCode, body, want)
		}
		if ct, cc := res.Header.Get("Content-Type"), res.Header.Get("Cache-Control"); ct != "application/json" || cc != "no-store" {
			t.Errorf("Content-Type %q, Cache-Control %q", ct, cc)
		}
	})
}
