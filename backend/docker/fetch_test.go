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

// A client is told what is the matter with an image, and not where the registry, the proxy and the name server are. What will never be
// had is the caller's mistake, also where the engine had begun to fetch and so has no code for it.
func TestWhyAnImageCannotBeHadIsToldWithoutAddresses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	b, _ := w.new("whynot")
	s := spec("whynot", "")
	s.Image = "keepwell-test/why:1"
	for words, want := range map[string]string{
		`Get https://registry.corp:5000/v2/: dial tcp: lookup registry.corp on 10.0.0.2:53: no such host`:   "no such host",
		`Get https://r/v2/: proxyconnect tcp: dial tcp 10.1.2.3:3128: connect: connection refused`:          "connection refused",
		`Get https://r/v2/: net/http: TLS handshake timeout`:                                                "handshake timeout",
		`toomanyrequests: You have reached your pull rate limit, user:secret@r`:                             "toomanyrequests",
		`failed to register layer: write /var/lib/docker/x: no space left on device`:                        "no space left on device",
		`something of 10.0.0.2 that nobody has heard of`:                                                    "",
		`no matching manifest for linux/s390x in the manifest list entries`:                                 "invalid",
		`pull access denied for keepwell-test/why, repository does not exist or may require 'docker login'`: "invalid",
	} {
		mend := w.proxy.Fault(words, func(r *http.Request) enginetest.Verdict { return when(isPull(r)) })
		_, err := b.Create(t.Context(), s)
		_ = mend()
		image, ok := errors.AsType[*backend.ImageError](err)
		switch {
		case !strings.Contains(err.Error(), words):
			t.Errorf("the log lacks %q: %v", words, err)
		case want == "invalid":
			if !errors.Is(err, backend.ErrInvalid) {
				t.Errorf("%q gives %v, want ErrInvalid", words, err)
			}
		case !ok || !errors.Is(err, backend.ErrUnavailable) || image.Reason != want || image.Image != s.Image:
			t.Errorf("%q gives %+v, want the reason %q", words, image, want)
		}
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
