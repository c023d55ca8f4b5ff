// Package enginetest gives tests a Docker Engine of their own, and a proxy before it that makes it fail.
//
// It prevents tests against an engine that never fails, since the faults of a client show only when answers are late, lost, doubled
// or wrong. And it prevents tests that are at odds with what else the machine's own engine runs: the engine is started for them, with
// all that is its in one directory, and nothing is left of it.
package enginetest

import (
	"context"
	_ "embed" // of the script
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
)

// What tells the tests of an engine that was started by the script beside this file: its socket, and the directory, by which it can
// be restarted. Without DOCKER_HOST they start one themselves.
const (
	hostVariable = "DOCKER_HOST"
	dirVariable  = "KEEPWELL_ENGINE"
)

// Network is a network on the engine that tests may use together: an engine has room for some thirty networks.
const Network = "keepwell-test"

//go:embed engine
var script []byte

// Engine is a Docker Engine for tests. It is safe for concurrent use.
type Engine struct {
	Socket string // path of its socket
	Runner string // path of a static runner that was built for it
	Dir    string // all that is its; "": it was not started for tests and cannot be restarted
	API    *client.Client
	script string // path
}

// Shared is the engine of all tests of a program, which is started when the first asks for it. The zero Shared is ready for use.
type Shared struct {
	once   sync.Once
	engine *Engine
	err    error
	undo   []func() // in the opposite order
}

// errNoEngine is why tests are skipped.
var errNoEngine = errors.New("no Docker Engine")

// Required says whether KEEPWELL_REQUIRE lists docker.
func Required() bool {
	return slices.Contains(strings.Split(os.Getenv("KEEPWELL_REQUIRE"), ","), "docker")
}

// Engine returns the engine. Without one the test is skipped, or fails where KEEPWELL_REQUIRE lists docker.
func (s *Shared) Engine(t testing.TB) *Engine {
	t.Helper()
	s.once.Do(func() { s.engine, s.err = s.find() })
	switch {
	case s.err == nil:
		return s.engine
	case errors.Is(s.err, errNoEngine) && !Required():
		t.Skip(s.err)
	default:
		t.Fatal(s.err)
	}
	return nil
}

// Stop ends what was started. A TestMain calls it after the tests.
func (s *Shared) Stop() {
	for _, f := range slices.Backward(s.undo) {
		f()
	}
}

func (s *Shared) find() (*Engine, error) {
	dir, err := os.MkdirTemp("", "kwd") // short, since a socket's path is
	if err != nil {
		return nil, err
	}
	s.undo = append(s.undo, func() { _ = os.RemoveAll(dir) })
	e := &Engine{Dir: os.Getenv(dirVariable), Runner: filepath.Join(dir, "runner"), script: filepath.Join(dir, "script")}
	if err := os.WriteFile(e.script, script, 0o700); err != nil {
		return nil, err
	}
	if host := os.Getenv(hostVariable); host != "" {
		socket, ok := strings.CutPrefix(host, "unix://")
		if !ok {
			return nil, fmt.Errorf("%w: %s is %s, and the tests put themselves between on a unix socket", errNoEngine, hostVariable, host)
		}
		e.Socket = socket
	} else if err := s.start(e, filepath.Join(dir, "engine")); err != nil {
		return nil, err
	}
	if e.API, err = client.New(client.WithHost("unix://" + e.Socket)); err != nil {
		return nil, err
	}
	return e, errors.Join(e.buildRunner(), e.makeNetwork())
}

func (s *Shared) start(e *Engine, dir string) error {
	if !Required() {
		return fmt.Errorf("%w: %s is not set, and one is started only where KEEPWELL_REQUIRE lists docker", errNoEngine, hostVariable)
	}
	if _, err := exec.LookPath("dockerd"); err != nil || os.Geteuid() != 0 {
		return fmt.Errorf("%w: %s is not set, and to start one needs root and dockerd", errNoEngine, hostVariable)
	}
	if err := s.beAlone(); err != nil {
		return err
	}
	e.Dir, e.Socket = dir, filepath.Join(dir, "docker.sock")
	s.undo = append(s.undo, func() {
		if out, err := exec.Command(e.script, "stop", dir).CombinedOutput(); err != nil {
			fmt.Printf("engine: stop: %v: %s\n", err, out)
		}
	})
	return e.Run("start")
}

// beAlone waits until no other program's tests have an engine: one that starts clears the rules of the packet filter that another one
// counts on.
func (s *Shared) beAlone() error {
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), "keepwell-engine.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	s.undo = append(s.undo, func() { _ = lock.Close() }) // which lets go of it
	return syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
}

// Run starts, stops or restarts the engine.
func (e *Engine) Run(verb string) error {
	cmd := exec.Command(e.script, verb, e.Dir)
	cmd.Stderr = os.Stderr // a pipe would be held open by the engine
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("engine: %s: %w", verb, err)
	}
	return nil
}

func (e *Engine) buildRunner() error {
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", e.Runner, "github.com/keepwell-go/keepwell/backend/runner/cmd/runner")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the runner: %w: %s", err, out)
	}
	return nil
}

func (e *Engine) makeNetwork() error {
	ctx := context.Background()
	got, err := e.API.NetworkList(ctx, client.NetworkListOptions{Filters: client.Filters{}.Add("name", Network)})
	if err != nil || len(got.Items) > 0 {
		return err
	}
	_, err = e.API.NetworkCreate(ctx, Network, client.NetworkCreateOptions{Driver: "bridge", IPAM: &network.IPAM{}})
	return err
}
