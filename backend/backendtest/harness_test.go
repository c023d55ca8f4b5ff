package backendtest_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/backendtest"
	"github.com/keepwell-go/keepwell/backend/memory"
)

// R66: the fake passes what the real ones pass, and skips nothing.
func TestMemoryKeepsTheContract(t *testing.T) {
	backendtest.Run(t, func(*testing.T) backendtest.Harness { return harness(plain) })
}

func plain(b *memory.Backend) backend.Backend { return b }

// The bounds of calls change nothing of the contract.
func TestBoundedBackendKeepsTheContract(t *testing.T) {
	backendtest.Run(t, func(*testing.T) backendtest.Harness {
		return harness(func(b *memory.Backend) backend.Backend {
			return bounded{backend.Budgets{}.Bound(b).(markingBackend), b}
		})
	})
}

type markingBackend interface {
	backend.Backend
	backend.Marker
}

// bounded lets the harness reach the workspace behind the budgets.
type bounded struct {
	markingBackend
	workspace
}

type workspace interface {
	WriteFile(id, name string, data []byte) error
	ReadFile(id, name string) ([]byte, error)
	Kill(id string) bool
}

// harness can do all that the suite asks of an engine, to handles that are wrapped by wrap.
func harness(wrap func(*memory.Backend) backend.Backend) backendtest.Harness {
	var noRunner atomic.Bool
	engine := memory.NewEngine(memory.Config{Endpoint: func(_ context.Context, s backend.Sandbox) (backend.Endpoint, error) {
		if noRunner.Load() {
			return backend.Endpoint{}, fmt.Errorf("%w: no runner starts from this image", backend.ErrInvalid)
		}
		return backend.Endpoint{Network: "unix", Address: "/run/" + s.Instance}, nil
	}})
	breakBy := func(f memory.Fault) func(context.Context) (func() error, error) {
		return func(context.Context) (func() error, error) {
			lift := engine.Inject(f)
			return func() error { lift(); return nil }, nil
		}
	}
	return backendtest.Harness{
		New: func(owner string) (backend.Backend, error) { return wrap(engine.Open(owner)), nil },
		WriteFile: func(_ context.Context, b backend.Backend, s backend.Sandbox, name string, data []byte) error {
			return b.(workspace).WriteFile(s.ID, name, data)
		},
		ReadFile: func(_ context.Context, b backend.Backend, s backend.Sandbox, name string) ([]byte, error) {
			return b.(workspace).ReadFile(s.ID, name)
		},
		Kill: func(_ context.Context, b backend.Backend, s backend.Sandbox) error {
			if !b.(workspace).Kill(s.ID) {
				return fmt.Errorf("%q does not run", s.ID)
			}
			return nil
		},
		Break:       breakBy(memory.Fault{Err: backend.ErrUnavailable}),
		Hang:        breakBy(memory.Fault{Hang: true}),
		FailDestroy: breakBy(memory.Fault{Call: "destroy", Partial: true}),
		Fill:        breakBy(memory.Fault{Call: "create", Err: backend.ErrQuota}),
		FailCreate: func(context.Context) (func() error, error) {
			noRunner.Store(true)
			return func() error { noRunner.Store(false); return nil }, nil
		},
		Restart: func(context.Context) error { return nil }, // an engine outlives its handles anyway
		Leftovers: func(ctx context.Context, owner string) (left []string, err error) {
			snap, err := engine.Open(owner).List(ctx)
			for _, s := range snap.Sandboxes {
				left = append(left, s.ID)
			}
			return left, err
		},
	}
}
