package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/backend/docker"
	"github.com/keepwell-go/keepwell/backend/docker/enginetest"
	"github.com/keepwell-go/keepwell/refserver"
)

// hasty is the real clock, but for waits of a minute: they are over at once.
type hasty struct{ clock.Clock }

func (h hasty) Timer(d time.Duration) *clock.Timer {
	if d == time.Minute {
		d = 0
	}
	return h.Clock.Timer(d)
}

// askEngine sends a request to the engine itself, for what its client is not needed.
func askEngine(t *testing.T, e *enginetest.Engine, method, path string) {
	t.Helper()
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", e.Socket)
	}}
	r, err := http.NewRequest(method, "http://engine"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		t.Errorf("the engine answered %s to %s %s", resp.Status, method, path)
	}
}

// slowPulls makes the proxy play a registry that has made under another name, and gives it out when arrive is closed.
func slowPulls(t *testing.T, e *enginetest.Engine, proxy *enginetest.Proxy, made, image string) (pulls *atomic.Int64, arrive chan struct{}) {
	pulls, arrive = new(atomic.Int64), make(chan struct{})
	mend := proxy.Fault("", func(r *http.Request) enginetest.Verdict {
		if !strings.HasSuffix(r.URL.Path, "/images/create") || r.URL.Query().Get("fromImage") == "" {
			return enginetest.Pass
		}
		pulls.Add(1)
		<-arrive
		askEngine(t, e, http.MethodPost, "/images/"+made+"/tag?repo="+url.QueryEscape(image)+"&tag=1")
		return enginetest.Claim
	})
	t.Cleanup(func() { _ = mend() })
	return pulls, arrive
}

// R109: through the whole server, on a real engine: a create whose image takes its time is told 503 `preparing`, holds neither id nor
// slot meanwhile, and the one that comes later finds the image of the one pull there was. The command waits by itself.
func TestACreateWhoseImageIsBeingPulledIsToldToComeBack(t *testing.T) {
	const owner, image = "prepares", "keepwell-test/slow"
	e := shared.Engine(t)
	proxy := enginetest.NewProxy(t, e)
	t.Cleanup(func() { e.Clean(t, owner) })
	be, err := docker.Open(docker.Config{
		Owner: owner, Key: []byte("the key of all these sites"), Runner: e.Runner, Shell: staticShell(),
		Host: "unix://" + proxy.Socket, Network: enginetest.Network, Clock: hasty{clock.New()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(be.Close)
	made, err := be.Prepare(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	pulls, arrive := slowPulls(t, e, proxy, made, image)
	s := newSite(t, owner+"x", func(cfg *refserver.Config) { cfg.Backend, cfg.MaxSandboxes = be, 1 })

	first := s.do("POST", "", `{"id":"a","image":"`+image+`:1"}`).want(t, 503, "preparing")
	if !strings.Contains(first.raw, "being fetched") {
		t.Errorf("the answer is %s", first.raw)
	}
	s.get("a").want(t, 404, "not_found")
	s.create("b").want(t, 201, "") // the only slot, and another image
	s.destroy("b").want(t, 200, "")

	var told sync.Once
	waits := make(chan struct{}) // closed when the command has been told to come back
	watched := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.srv.Handler().ServeHTTP(w, r)
		if w.Header().Get("Retry-After") != "" {
			told.Do(func() { close(waits) })
		}
	}))
	t.Cleanup(watched.Close)
	l := newLab(t)
	l.env = append(l.env, tokenVariable+"="+siteToken)
	created := make(chan string, 1)
	go func() {
		out, code := l.run("create", "a", "--image", image+":1", "--server", watched.URL)
		if code != 0 {
			t.Errorf("the command ended with %d", code)
		}
		created <- out
	}()
	<-waits
	close(arrive)
	if out := <-created; !strings.Contains(out, "image is being fetched") || !strings.HasSuffix(out, "\na\n") {
		t.Errorf("the command said %q", out)
	}
	if n := pulls.Load(); n != 1 {
		t.Errorf("the image was pulled %d times, want once", n)
	}
	s.destroy("a").want(t, 200, "")
	askEngine(t, e, http.MethodDelete, "/images/"+image+":1")
}
