package docker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
)

// What tells the tests of an engine that was started by testdata/engine: its socket, and the directory, by which it can be
// restarted. Without DOCKER_HOST the tests start one themselves.
const (
	hostVariable = "DOCKER_HOST"
	dirVariable  = "KEEPWELL_ENGINE"
)

// testNetwork is what the sandboxes of most tests join: an engine has room for some thirty networks.
const testNetwork = "keepwell-test"

// testEngine is the engine of all tests of this package.
type testEngine struct {
	socket string
	dir    string // "": it cannot be restarted
	runner string // path of the runner
	api    *client.Client
}

var shared = struct {
	get  func() (*testEngine, error) // starts it on first use
	stop func()
}{stop: func() {}}

func TestMain(m *testing.M) {
	if os.Getenv(createVariable) != "" {
		os.Exit(createAndDie())
	}
	shared.get = sync.OnceValues(findEngine)
	code := m.Run()
	shared.stop()
	os.Exit(code)
}

// errNoEngine is why tests are skipped.
var errNoEngine = errors.New("no Docker Engine")

// engine returns the engine. Without one the test is skipped, or fails where KEEPWELL_REQUIRE lists docker.
func engine(t testing.TB) *testEngine {
	t.Helper()
	e, err := shared.get()
	switch {
	case err == nil:
		return e
	case errors.Is(err, errNoEngine) && !strings.Contains(os.Getenv("KEEPWELL_REQUIRE"), "docker"):
		t.Skip(err)
	default:
		t.Fatal(err)
	}
	return nil
}

func findEngine() (*testEngine, error) {
	dir, err := os.MkdirTemp("", "kwd")
	if err != nil {
		return nil, err
	}
	e := &testEngine{dir: os.Getenv(dirVariable), runner: filepath.Join(dir, "runner")}
	shared.stop = func() { _ = os.RemoveAll(dir) }
	if host := os.Getenv(hostVariable); host != "" {
		socket, ok := strings.CutPrefix(host, "unix://")
		if !ok {
			return nil, fmt.Errorf("%w: %s is %s, and the tests put themselves between on a unix socket", errNoEngine, hostVariable, host)
		}
		e.socket = socket
	} else if err := e.start(filepath.Join(dir, "engine")); err != nil {
		return nil, err
	}
	if e.api, err = client.New(client.WithHost("unix://" + e.socket)); err != nil {
		return nil, err
	}
	return e, errors.Join(e.buildRunner(), e.makeNetwork())
}

func (e *testEngine) start(dir string) error {
	if !strings.Contains(os.Getenv("KEEPWELL_REQUIRE"), "docker") {
		return fmt.Errorf("%w: %s is not set, and one is started only where KEEPWELL_REQUIRE lists docker", errNoEngine, hostVariable)
	}
	if _, err := exec.LookPath("dockerd"); err != nil || os.Geteuid() != 0 {
		return fmt.Errorf("%w: %s is not set, and to start one needs root and dockerd", errNoEngine, hostVariable)
	}
	rest := shared.stop
	shared.stop = func() {
		if out, err := exec.Command("testdata/engine", "stop", dir).CombinedOutput(); err != nil {
			fmt.Printf("engine: stop: %v: %s\n", err, out)
		}
		rest()
	}
	e.dir, e.socket = dir, filepath.Join(dir, "docker.sock")
	return e.script("start")
}

func (e *testEngine) script(verb string) error {
	cmd := exec.Command("testdata/engine", verb, e.dir)
	cmd.Stderr = os.Stderr // a pipe would be held open by the engine
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("engine: %s: %w", verb, err)
	}
	return nil
}

func (e *testEngine) buildRunner() error {
	cmd := exec.Command("go", "build", "-o", e.runner, "github.com/keepwell-go/keepwell/backend/runner/cmd/runner")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the runner: %w: %s", err, out)
	}
	return nil
}

func (e *testEngine) makeNetwork() error {
	ctx := context.Background()
	got, err := e.api.NetworkList(ctx, client.NetworkListOptions{Filters: client.Filters{}.Add("name", testNetwork)})
	if err != nil || len(got.Items) > 0 {
		return err
	}
	_, err = e.api.NetworkCreate(ctx, testNetwork, client.NetworkCreateOptions{Driver: "bridge", IPAM: &network.IPAM{}})
	return err
}

// leftovers names everything on the engine that belongs to an owner.
func (e *testEngine) leftovers(ctx context.Context, owner string) ([]string, error) {
	f := client.Filters{}.Add("label", "keepwell.owner="+owner)
	cs, err := e.api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: f})
	if err != nil {
		return nil, err
	}
	vs, err := e.api.VolumeList(ctx, client.VolumeListOptions{Filters: f})
	if err != nil {
		return nil, err
	}
	var left []string
	for _, c := range cs.Items {
		left = append(left, fmt.Sprintf("container %s (%s)", c.Names, c.State))
	}
	for _, v := range vs.Items {
		left = append(left, "volume "+v.Name)
	}
	return left, nil
}

// clean fails the test for what an owner has left, and removes it.
func (e *testEngine) clean(t testing.TB, owner string) {
	ctx := context.Background()
	left, err := e.leftovers(ctx, owner)
	if err != nil {
		t.Errorf("leftovers of %s: %v", owner, err)
	}
	for _, l := range left {
		if !t.Failed() {
			t.Errorf("%s is left of owner %s", l, owner)
		}
	}
	f := client.Filters{}.Add("label", "keepwell.owner="+owner)
	cs, _ := e.api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: f})
	for _, c := range cs.Items {
		_, _ = e.api.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	}
	vs, _ := e.api.VolumeList(ctx, client.VolumeListOptions{Filters: f})
	for _, v := range vs.Items {
		_, _ = e.api.VolumeRemove(ctx, v.Name, client.VolumeRemoveOptions{})
	}
	ns, _ := e.api.NetworkList(ctx, client.NetworkListOptions{Filters: f})
	for _, n := range ns.Items {
		_, _ = e.api.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{})
	}
}
