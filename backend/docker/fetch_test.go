package docker_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/moby/moby/client"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/docker/enginetest"
)

func isPull(r *http.Request) bool {
	return strings.HasSuffix(r.URL.Path, "/images/create") && r.URL.Query().Get("fromImage") != ""
}

// R36, R109: an image is fetched once for all who wait, on nobody's time: who leaves is told that it is being prepared, and a later
// create finds it.
func TestAnImageIsFetchedOnceAndOutlivesTheCreate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	w.importImage(t, "keepwell-test/here:1")
	const wanted = "keepwell-test/fetched:1"
	log, lines := observer.New(zap.InfoLevel)
	cfg := w.config("fetch")
	cfg.Logger = zap.New(log)
	b, err := w.openWith(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var pulls atomic.Int64
	asked, arrived := make(chan struct{}, 16), make(chan struct{})
	mend := w.proxy.Fault("", func(r *http.Request) enginetest.Verdict { // plays the registry, which is slow
		if !isPull(r) {
			return enginetest.Pass
		}
		pulls.Add(1)
		asked <- struct{}{}
		<-arrived
		if _, err := w.engine.API.ImageTag(context.Background(), client.ImageTagOptions{Source: "keepwell-test/here:1", Target: wanted}); err != nil {
			return enginetest.CutBefore
		}
		return enginetest.Claim
	})
	defer func() { _ = mend() }()
	s := spec("fetch", "")
	s.Image = wanted
	impatient, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { _, err := b.Create(impatient, s); left <- err }()
	<-asked
	leave()
	if err := <-left; !errors.Is(err, backend.ErrPreparing) || !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("create while the image is fetched: %v", err)
	}
	var waiting sync.WaitGroup
	for i := range 3 {
		waiting.Go(func() {
			s := s
			s.ID = fmt.Sprintf("fetch-%d", i)
			if _, err := b.Create(t.Context(), s); err != nil {
				t.Errorf("create that waits for the fetch: %v", err)
				return
			}
			mustDestroy(t, b, s.Ref)
		})
	}
	close(arrived)
	waiting.Wait()
	if n := pulls.Load(); n != 1 {
		t.Errorf("the image was pulled %d times, want once", n)
	}
	if lines.FilterMessage("fetching image").Len() != 1 || lines.FilterMessage("image fetched").Len() != 1 {
		t.Errorf("logged %v", lines.All())
	}
	if _, err := w.engine.API.ImageRemove(t.Context(), wanted, client.ImageRemoveOptions{}); err != nil {
		t.Error(err)
	}
}

// An image that cannot be had is the caller's mistake; a registry that does not answer is not.
func TestAnImageThatCannotBeHad(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	b, _ := w.new("nohad")
	s := spec("nohad", "")
	s.Image = "keepwell-test/none:1"
	mend := w.proxy.Fault("registry is down", func(r *http.Request) enginetest.Verdict { return when(isPull(r)) })
	_, err := b.Create(t.Context(), s)
	_ = mend()
	if !errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrPreparing) || !strings.Contains(err.Error(), "registry is down") {
		t.Errorf("create: %v", err)
	}
}

// A Backend that is closed ends its fetches and waits for them.
func TestCloseEndsAFetch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	b, err := w.openWith(w.config("closes"))
	if err != nil {
		t.Fatal(err)
	}
	asked := w.hangingPulls(t)
	s := spec("closes", "")
	s.Image = "keepwell-test/hangs:1"
	made := make(chan error, 1)
	go func() { _, err := b.Create(t.Context(), s); made <- err }()
	<-asked
	b.Close()
	if err := <-made; !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("create: %v", err)
	}
	if _, err := b.Create(t.Context(), s); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("create after close: %v", err)
	}
}
