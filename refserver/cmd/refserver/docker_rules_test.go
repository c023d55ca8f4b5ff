package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/docker"
	"github.com/keepwell-go/keepwell/backend/docker/enginetest"
	"github.com/keepwell-go/keepwell/refserver"
)

func oneSandbox(cfg *refserver.Config) { cfg.MaxSandboxes = 1 }

func isContainerRemoval(r *http.Request) bool {
	return r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/containers/")
}

// R28, R83, R86: a destroy that the engine does not confirm is told as unknown and holds the slot, whether the container stays, its
// volume does or the engine cannot be asked; and when the engine is well again a retry says that it is deleted.
func TestADestroyThatTheEngineDoesNotConfirmHoldsItsSlot(t *testing.T) {
	t.Parallel()
	s := newSite(t, "confirm", oneSandbox)
	for _, c := range []struct {
		name   string
		judge  func(*http.Request) enginetest.Verdict
		status int // of a GET meanwhile
		code   string
	}{
		{"container", func(r *http.Request) enginetest.Verdict { return refuseWhen(isContainerRemoval(r)) }, 200, ""},
		{"volume", func(r *http.Request) enginetest.Verdict { return refuseWhen(isVolumeRemoval(r)) }, 404, "stopped"},
		{"engine", func(*http.Request) enginetest.Verdict { return enginetest.CutBefore }, 503, "backend_unavailable"},
	} {
		s.create(c.name).want(t, http.StatusCreated, "")
		mend := s.proxy.Fault("no space left on device", c.judge)
		got := s.destroy(c.name).want(t, http.StatusBadGateway, "destroy_failed")
		if got.body["deleted"] != false || got.str("outcome") != "unknown" {
			t.Errorf("%s: destroy answered %s", c.name, got.raw)
		}
		s.create("next").want(t, http.StatusTooManyRequests, "quota_exceeded")
		s.get(c.name).want(t, c.status, c.code)
		_ = mend()
		if got := s.destroy(c.name).want(t, http.StatusOK, ""); got.body["deleted"] != true || got.str("outcome") != "stopped" {
			t.Errorf("%s: the retry answered %s", c.name, got.raw)
		}
		s.get(c.name).want(t, http.StatusNotFound, "not_found")
		s.isClean()
	}
	s.create("next").want(t, http.StatusCreated, "")
	s.destroy("next").want(t, http.StatusOK, "")
}

// R84: twenty destroys of one sandbox are one on the engine, and all are told what it came to.
func TestTwentyDestroysAreOneOnTheEngine(t *testing.T) {
	const all = 20
	s := newSite(t, "joined")
	s.create("box").want(t, http.StatusCreated, "")
	var removals atomic.Int64
	asked, release := make(chan struct{}, all), make(chan struct{})
	mend := s.proxy.Fault("", func(r *http.Request) enginetest.Verdict {
		if isContainerRemoval(r) {
			removals.Add(1)
			asked <- struct{}{}
			<-release
		}
		return enginetest.Pass
	})
	defer func() { _ = mend() }()
	var answers []<-chan reply
	for range all {
		answers = append(answers, s.later("DELETE", "/box", ""))
	}
	<-asked
	until(t, "all have joined", func() bool { return waiting("refserver.(*Server).join(") == all })
	if got := s.create("box").want(t, http.StatusConflict, "duplicate"); got.str("state") != "destroying" {
		t.Errorf("create meanwhile answered %s", got.raw)
	}
	close(release)
	for _, ch := range answers {
		if got := (<-ch).want(t, http.StatusOK, ""); got.str("outcome") != "stopped" {
			t.Errorf("answered %s", got.raw)
		}
	}
	if n := removals.Load(); n != 1 {
		t.Errorf("the engine was asked to remove the container %d times, want once", n)
	}
	s.isClean()
}

// misled is the Docker backend, but for where it says that a new sandbox is, while it is misled.
type misled struct {
	*docker.Backend
	now *atomic.Bool
}

func (m misled) Create(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
	sb, err := m.Backend.Create(ctx, s)
	if m.now.Load() {
		sb.Endpoint.Address = "127.0.0.1:1" // where nobody listens
	}
	return sb, err
}

// R30: a sandbox that runs and cannot be reached is destroyed if it is fresh, and stopped if it was resumed, whose workspace is not
// the create's to delete.
func TestWhatCannotBeReachedOnDockerIsUndoneByTheVerbThatFits(t *testing.T) {
	t.Parallel()
	var now atomic.Bool
	s := newSite(t, "misled", oneSandbox, func(cfg *refserver.Config) { cfg.Backend = misled{cfg.Backend.(*docker.Backend), &now} })
	s.create("old").want(t, http.StatusCreated, "")
	s.sh("old", "echo precious >kept").want(t, http.StatusOK, "")
	s.stop("old").want(t, http.StatusOK, "")

	now.Store(true)
	s.create("old").want(t, http.StatusBadGateway, "create_failed")
	s.get("old").want(t, http.StatusNotFound, "stopped")
	s.create("new").want(t, http.StatusBadGateway, "create_failed")
	s.get("new").want(t, http.StatusNotFound, "not_found")
	now.Store(false)

	if got := s.create("old").want(t, http.StatusCreated, ""); got.body["resumed"] != true {
		t.Errorf("create answered %s", got.raw)
	}
	if got := s.sh("old", "cat kept"); !strings.Contains(got.raw, "precious") {
		t.Errorf("the workspace has lost its file: %s", got.raw)
	}
	s.destroy("old").want(t, http.StatusOK, "")
	s.isClean()
}

// R102: a create that the engine answers too late is unknown and counted. What comes of it later is found by a list: it is adopted
// if it runs, and freed if it does not.
func TestACreateThatTheEngineFinishesTooLateIsFoundByAList(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		late   string // end of the path of the request that is late
		status int    // of a GET in the end
		code   string
	}{
		{"/start", 200, ""},
		{"/containers/create", 404, "stopped"},
	} {
		t.Run(strings.Trim(c.late, "/"), func(t *testing.T) {
			budgets := clock.NewMock()
			s := newSite(t, "late", oneSandbox, func(cfg *refserver.Config) { cfg.SweepEvery, cfg.Budgets.Clock = time.Second, budgets })
			s.create("first").want(t, http.StatusCreated, "") // what all share is made only once
			s.destroy("first").want(t, http.StatusOK, "")
			var late atomic.Bool
			mend := s.proxy.Fault("", func(r *http.Request) enginetest.Verdict {
				switch {
				case strings.HasSuffix(r.URL.Path, c.late) && late.CompareAndSwap(false, true):
					body, _ := io.ReadAll(r.Body) // all that the engine will be asked, before its sender gives up
					r.Body = io.NopCloser(bytes.NewReader(body))
					go budgets.Add(time.Hour) // which is longer than any budget
					return enginetest.Late
				case late.Load(): // and from then on it does not answer anything
					return enginetest.CutBefore
				}
				return enginetest.Pass
			})
			if got := s.create("box").want(t, http.StatusBadGateway, "create_failed"); got.str("outcome") != "unknown" {
				t.Errorf("create answered %s", got.raw)
			}
			s.create("other").want(t, http.StatusTooManyRequests, "quota_exceeded")
			_ = mend()
			var last reply
			t.Cleanup(func() { // until says only that it waited in vain
				if t.Failed() {
					t.Logf("the last answer about the sandbox was %d %s", last.status, last.raw)
				}
			})
			until(t, "the late sandbox is there", func() bool {
				last = s.get("box")
				return last.status == c.status && last.str("code") == c.code
			})
			s.create("other").want(t, http.StatusTooManyRequests, "quota_exceeded")
			s.run()
			s.settle()
			if c.status != http.StatusOK {
				s.create("other").want(t, http.StatusCreated, "")
			}
			s.isFilledTo(1)
			s.destroyAll()
		})
	}
}
