package docker_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/docker/enginetest"
)

// R13, R25: an engine that is down when the server starts is unavailable, and is used as soon as it is there.
func TestAnEngineMayComeLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	mend := w.proxy.Fault("", func(*http.Request) enginetest.Verdict { return enginetest.CutBefore })
	b, err := w.openWith(w.config("comeslater"))
	if err != nil {
		t.Fatal(err)
	}
	s := spec("box", "")
	if _, err := b.Create(t.Context(), s); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("create: %v, want unavailable", err)
	}
	if _, err := b.List(t.Context()); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("list: %v, want unavailable", err)
	}
	_ = mend()
	mustCreate(t, b, s)
	mustDestroy(t, b, s.Ref)
}

// R83, R101, R102: an engine that goes down in the middle of a create leaves its end unknown. When it is back, a list knows what has
// become of it, and a destroy by the instance removes all of it.
func TestAnEngineThatGoesDownDuringACreateLeavesNothingUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	b, _ := w.new("goesdown")
	mustCreate(t, b, spec("first", "")) // the base is made only once
	mustDestroy(t, b, spec("first", "").Ref)
	for id, c := range map[string]struct {
		last  string // end of the path of the last request that the engine hears of, or does not
		v     enginetest.Verdict
		state string // in the end
	}{
		"before-create": {"/containers/create", enginetest.CutBefore, "absent"},
		"after-create":  {"/containers/create", enginetest.CutAfter, "stopped"},
		"before-start":  {"/start", enginetest.CutBefore, "stopped"},
		"after-start":   {"/start", enginetest.CutAfter, "running"},
	} {
		s := spec(id, "")
		var down atomic.Bool
		mend := w.proxy.Fault("", func(r *http.Request) enginetest.Verdict {
			switch {
			case strings.HasSuffix(r.URL.Path, c.last) && down.CompareAndSwap(false, true):
				return c.v
			case down.Load():
				return enginetest.CutBefore
			}
			return enginetest.Pass
		})
		_, err := b.Create(t.Context(), s)
		for _, says := range []error{backend.ErrConflict, backend.ErrUnavailable, backend.ErrInvalid, backend.ErrQuota} {
			if err == nil || errors.Is(err, says) {
				t.Errorf("%s: %v claims to know the effect", id, err)
			}
		}
		if out, err := b.Destroy(t.Context(), s.Ref); out != backend.Unknown || !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("%s: destroy while the engine is down is %v, %v", id, out, err)
		}
		_ = mend()
		if got := w.isListed(t, b, s.Ref); got != c.state {
			t.Errorf("%s: it is listed as %s, want %s", id, got, c.state)
		}
		want := backend.Stopped
		if c.state == "absent" {
			want = backend.Gone
		}
		if out, err := b.Destroy(t.Context(), s.Ref); out != want || err != nil {
			t.Errorf("%s: destroy is %v, %v; want %v", id, out, err, want)
		}
		if left, err := w.engine.Leftovers(t.Context(), "goesdown"); len(left) > 0 || err != nil {
			t.Errorf("%s: there is left %q, %v", id, left, err)
		}
	}
}

// R34, R35, R37: each call of an engine that hangs ends at its own budget and says so, and its outcome is Unknown. What hangs may be
// any question in the middle of it.
func TestACallOfAHungEngineEndsAtItsBudget(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	bare, _ := w.new("hung")
	sb := mustCreate(t, bare, spec("box", ""))
	now := clock.NewMock()
	b := backend.Budgets{Clock: now}.Bound(bare)
	for what, c := range map[string]struct {
		hangs  string // end of the path
		budget time.Duration
		call   func(context.Context) (backend.Outcome, error)
	}{
		"ping": {"/_ping", 5 * time.Second, func(ctx context.Context) (backend.Outcome, error) { return backend.Unknown, b.Ping(ctx) }},
		"list": {"/containers/json", 15 * time.Second, func(ctx context.Context) (backend.Outcome, error) {
			_, err := b.List(ctx)
			return backend.Unknown, err
		}},
		"volumes": {"/volumes", 15 * time.Second, func(ctx context.Context) (backend.Outcome, error) {
			_, err := b.List(ctx)
			return backend.Unknown, err
		}},
		"image": {"/json", 180 * time.Second, func(ctx context.Context) (backend.Outcome, error) {
			_, err := b.Create(ctx, spec("other", ""))
			return backend.Unknown, err
		}},
		"stop": {"/stop", 60 * time.Second, func(ctx context.Context) (backend.Outcome, error) { return b.Stop(ctx, sb.Ref) }},
	} {
		asked := make(chan struct{}, 100)
		mend := w.proxy.Fault("", func(r *http.Request) enginetest.Verdict {
			if strings.HasSuffix(r.URL.Path, c.hangs) {
				asked <- struct{}{}
				return enginetest.Hang
			}
			return enginetest.Pass
		})
		type end struct {
			out backend.Outcome
			err error
		}
		ended := make(chan end, 1)
		go func() { out, err := c.call(t.Context()); ended <- end{out, err} }()
		<-asked
		now.Add(c.budget - 1)
		select {
		case got := <-ended:
			t.Errorf("%s ended before its budget with %v, %v", what, got.out, got.err)
		default:
			now.Add(1)
			if got := <-ended; got.out != backend.Unknown || !errors.Is(got.err, backend.ErrBudget) {
				t.Errorf("%s: %v, %v; want unknown at its budget", what, got.out, got.err)
			}
		}
		_ = mend()
	}
	if got := w.isListed(t, bare, sb.Ref); got == "absent" {
		t.Error("the sandbox is gone")
	}
	mustDestroy(t, bare, sb.Ref)
}

// R35, R83: a destroy whose inspection hangs is unknown, and a retry tells.
func TestADestroyWhoseInspectionHangsIsUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	b, _ := w.new("inspects")
	sb := mustCreate(t, b, spec("box", ""))
	asked := make(chan struct{}, 100)
	mend := w.proxy.Fault("", func(r *http.Request) enginetest.Verdict {
		if strings.Contains(r.URL.Path, "/containers/") && strings.HasSuffix(r.URL.Path, "/json") && !strings.HasSuffix(r.URL.Path, "/containers/json") {
			asked <- struct{}{}
			return enginetest.Hang
		}
		return enginetest.Pass
	})
	ctx, leave := context.WithCancel(t.Context())
	go func() { <-asked; leave() }()
	if out, err := b.Destroy(ctx, sb.Ref); out != backend.Unknown || !errors.Is(err, context.Canceled) {
		t.Errorf("destroy is %v, %v; want unknown", out, err)
	}
	_ = mend()
	mustDestroy(t, b, sb.Ref)
}

// R27, R29, R83: a volume that cannot be removed, be it for a full disk, is neither a quota nor a success: the sandbox stays listed,
// and a retry removes it.
func TestAVolumeThatStaysForAFullDiskIsUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	b, _ := w.new("fulldisk")
	sb := mustCreate(t, b, spec("box", ""))
	mend := w.proxy.Fault("write /volumes: no space left on device", onWorkspaceRemoval)
	out, err := b.Destroy(t.Context(), sb.Ref)
	_ = mend()
	if out != backend.Unknown || errors.Is(err, backend.ErrQuota) || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("destroy is %v, %v; want unknown in the engine's words", out, err)
	}
	if got := w.isListed(t, b, sb.Ref); got != "stopped" {
		t.Errorf("it is listed as %s, want stopped", got)
	}
	mustDestroy(t, b, sb.Ref)
}
