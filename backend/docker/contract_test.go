package docker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/backendtest"
	"github.com/keepwell-go/keepwell/backend/docker"
	"github.com/keepwell-go/keepwell/backend/docker/enginetest"
)

// R2, R13, R23, R26, R27, R29, R35, R83, R85, R101, R104, R105, R112: the contract that all backends keep, on a real engine. The
// cases that restart it come first and alone.
func TestContract(t *testing.T) {
	e := engine(t)
	backendtest.Run(t, func(t *testing.T) backendtest.Harness {
		if !restarts(path.Base(t.Name())) {
			t.Parallel()
		}
		return newWorld(t, e).harness()
	})
}

func restarts(name string) bool {
	return slices.ContainsFunc(backendtest.Cases(), func(c backendtest.Case) bool {
		return c.Name == name && slices.Contains(c.Needs, "Restart")
	})
}

// world is the engine as one test sees it: through a proxy of its own.
type world struct {
	t      testing.TB
	engine *enginetest.Engine
	proxy  *enginetest.Proxy

	mu     sync.Mutex // guards the fields below
	owners map[string]bool
	open   []*docker.Backend
	asked  map[string]int // handles of an owner that were asked for
	shared map[string][]backend.Backend
}

// replicas is how many handles of one owner are opened before they take turns: each reads, packs and hashes megabytes, which the race
// detector watches byte by byte.
const replicas = 4

func newWorld(t testing.TB, e *enginetest.Engine) *world {
	w := &world{t: t, engine: e, proxy: enginetest.NewProxy(t, e), owners: map[string]bool{}, asked: map[string]int{}, shared: map[string][]backend.Backend{}}
	t.Cleanup(func() {
		w.mu.Lock() // a case that has run out of patience may still be opening some
		defer w.mu.Unlock()
		for _, b := range w.open {
			b.Close()
		}
		for owner := range w.owners {
			e.Clean(t, owner)
		}
	})
	return w
}

func (w *world) config(owner string) docker.Config {
	return docker.Config{
		Owner: owner, Key: []byte("the key of all these tests"), Runner: w.engine.Runner, Shell: "/bin/busybox",
		Host: "unix://" + w.proxy.Socket, Network: enginetest.Network,
	}
}

func (w *world) new(owner string) (backend.Backend, error) {
	w.mu.Lock()
	n, had := w.asked[owner], w.shared[owner]
	w.asked[owner]++
	w.mu.Unlock()
	if n >= replicas && len(had) > 0 {
		return had[n%len(had)], nil
	}
	b, err := w.openWith(w.config(owner))
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shared[owner] = append(w.shared[owner], b)
	return b, nil
}

func (w *world) openWith(cfg docker.Config) (*docker.Backend, error) {
	b, err := docker.Open(cfg)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owners[cfg.Owner] = true
	w.open = append(w.open, b)
	return b, nil
}

func (w *world) harness() backendtest.Harness {
	h := backendtest.Harness{
		New: w.new, WriteFile: writeFile, ReadFile: readFile,
		Break:       w.faults("", func(*http.Request) enginetest.Verdict { return enginetest.CutBefore }),
		Hang:        w.faults("", func(*http.Request) enginetest.Verdict { return enginetest.Hang }),
		FailDestroy: w.faults("device or resource busy", onWorkspaceRemoval),
		FailCreate:  w.faults("oci runtime error", onStart),
		Fill:        w.faults("no space left on device", onCreate),
		Kill:        w.kill,
		Restart:     func(context.Context) error { return w.engine.Run("restart") },
		Leftovers:   w.engine.Leftovers,
		Cannot:      map[string]string{},
		Settle:      time.Second, Patience: 5 * time.Minute,
	}
	if w.engine.Dir == "" {
		h.Restart, h.Cannot["Restart"] = nil, "KEEPWELL_ENGINE does not say how to restart the engine"
	}
	return h
}

func (w *world) faults(words string, judge func(*http.Request) enginetest.Verdict) func(context.Context) (func() error, error) {
	return func(context.Context) (func() error, error) { return w.proxy.Fault(words, judge), nil }
}

func when(is bool) enginetest.Verdict {
	if is {
		return enginetest.Refuse
	}
	return enginetest.Pass
}

func onWorkspaceRemoval(r *http.Request) enginetest.Verdict {
	return when(r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/volumes/kw-"))
}

func onStart(r *http.Request) enginetest.Verdict { return when(path.Base(r.URL.Path) == "start") }

func onCreate(r *http.Request) enginetest.Verdict {
	return when(strings.HasSuffix(r.URL.Path, "/containers/create"))
}

func (w *world) kill(ctx context.Context, _ backend.Backend, s backend.Sandbox) error {
	id, err := w.container(ctx, s.Ref)
	if err != nil {
		return err
	}
	wait := w.engine.API.ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	if _, err := w.engine.API.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "KILL"}); err != nil {
		return err
	}
	select {
	case <-wait.Result:
		return nil
	case err := <-wait.Error:
		return err
	}
}

// container returns the engine's id of an instance of one of the owners here.
func (w *world) container(ctx context.Context, r backend.Ref) (string, error) {
	f := client.Filters{}.Add("label", "keepwell.instance="+r.Instance, "keepwell.id="+r.ID, "keepwell.kind=sandbox")
	got, err := w.engine.API.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: f})
	if err != nil {
		return "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	ours := slices.DeleteFunc(got.Items, func(c container.Summary) bool { return !w.owners[c.Labels["keepwell.owner"]] })
	if len(ours) != 1 {
		return "", fmt.Errorf("%d containers are of %v", len(ours), r)
	}
	return ours[0].ID, nil
}

func writeFile(ctx context.Context, _ backend.Backend, s backend.Sandbox, name string, data []byte) error {
	_, err := inside(ctx, s, http.MethodPut, "files/write?path="+url.QueryEscape(name), bytes.NewReader(data))
	return err
}

func readFile(ctx context.Context, _ backend.Backend, s backend.Sandbox, name string) ([]byte, error) {
	return inside(ctx, s, http.MethodGet, "files/read?path="+url.QueryEscape(name), nil)
}

// inside asks the runner of a sandbox, as a server does.
func inside(ctx context.Context, s backend.Sandbox, method, path string, body io.Reader) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.Endpoint.Address+"/v1/sandboxes/"+s.ID+"/"+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+s.Endpoint.Token)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("%w: %s", fs.ErrNotExist, out)
	case resp.StatusCode != http.StatusOK:
		return nil, errors.Join(fmt.Errorf("%s: %s", resp.Status, out), err)
	}
	return out, err
}
