package keepwell_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
	"github.com/keepwell-go/keepwell/bodylimit"
	"github.com/keepwell-go/keepwell/probe"
	"github.com/keepwell-go/keepwell/quota"
	"github.com/keepwell-go/keepwell/registry"
	"github.com/keepwell-go/keepwell/sweep"
)

// spawner owns sandboxes of a backend: a registry knows them, a ledger counts them, and the ledger follows the registry.
type spawner struct {
	engine  backend.Backend
	known   *registry.Registry[string, backend.Sandbox]
	counted *quota.Ledger[string, backend.Spec]
}

func newSpawner(engine backend.Backend) *spawner {
	s := &spawner{engine: backend.Budgets{}.Bound(engine)}
	s.counted = quota.New[string](quota.Config{}, quota.Limit[backend.Spec]{Name: "host", Max: 2})
	s.known = registry.New(s.list, registry.Config[string, backend.Sandbox]{Observe: func(e registry.Event[string, backend.Sandbox]) {
		if e.Present && !e.Local {
			s.counted.Adopt(e.Key, e.Value.Spec)
		} else if t, ok := s.counted.Get(e.Key); ok && !e.Present {
			t.Release()
		}
	}})
	return s
}

func (s *spawner) list(ctx context.Context, ids []string) (registry.Snapshot[string, backend.Sandbox], error) {
	got, err := s.engine.List(ctx, ids...)
	snap := registry.Snapshot[string, backend.Sandbox]{Items: map[string]backend.Sandbox{}, Complete: got.Complete}
	for _, sb := range got.Sandboxes {
		if sb.Running { // a stopped one is there to be resumed, not to be found
			snap.Items[sb.ID] = sb
		}
	}
	return snap, err
}

func (s *spawner) create(ctx context.Context, id string) error {
	hold, err := s.known.Hold(id)
	if err != nil {
		return err
	}
	defer hold.Cancel()
	spec := backend.Spec{Ref: backend.Ref{ID: id, Instance: "i-" + id}, Tenant: "acme", Idle: time.Minute}
	token, err := s.counted.Reserve(id, spec)
	if err != nil {
		return err
	}
	defer token.Cancel() // before the hold: what is registered is counted
	sb, err := s.engine.Create(ctx, spec)
	if err != nil {
		return err
	}
	token.Live()
	hold.Fill(sb)
	return nil
}

// ServeHTTP creates what a body of at most 64 bytes asks for.
func (s *spawner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	limit := &bodylimit.Limiter{Max: 64}
	order, err := bodylimit.DecodeJSON[struct{ ID string }](limit, w, r)
	if limit.Refuse(w, r, err) || err != nil {
		return
	}
	_, _ = fmt.Fprint(w, s.create(r.Context(), order.ID))
}

func (s *spawner) post(body string) string {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(body)))
	return fmt.Sprint(w.Code, " ", w.Body)
}

// A service that creates, looks up, refuses and sweeps, on an engine that a second replica uses as well.
func Example() {
	ctx := context.Background()
	engine := memory.NewEngine(memory.Config{})
	here, there := newSpawner(engine.Open("acme")), newSpawner(engine.Open("acme"))

	health := probe.New(func(ctx context.Context) (struct{}, error) { return struct{}{}, here.engine.Ping(ctx) }, probe.Config{})
	defer health.Close()
	up, _ := health.Get(ctx)
	fmt.Println("the engine is", up.State)
	fmt.Println("create a:", here.post(`{"id":"a"}`))
	fmt.Println("too large:", here.post(`{"id":"` + strings.Repeat("a", 64) + `"}`)[:3])
	sb, err := there.known.Resolve(ctx, "a") // a miss there: a list that begins now finds it
	fmt.Println("the other replica finds", sb.Key, err)
	fmt.Println("create b:", there.create(ctx, "b"))
	full, _ := errors.AsType[*quota.ExceededError](there.create(ctx, "c"))
	fmt.Printf("create c: limit %s, %d of %d used\n", full.Limit, full.Used, full.Max)
	verdict, reason := sweep.Judge(sweep.Facts{Reachable: true, Idle: 2 * time.Minute, IdleTimeout: sb.Value.Idle})
	fmt.Printf("sweep a: %s (%s)\n", verdict, reason)
	outcome, err := here.engine.Stop(ctx, sb.Value.Ref)
	fmt.Println("stop a:", outcome, err)
	_, err = newSpawner(engine.Open("acme")).known.Resolve(ctx, "a") // the workspace is kept, but nothing runs there
	fmt.Println("a third replica finds no a:", errors.Is(err, registry.ErrNotFound))
	// Output:
	// the engine is up
	// create a: 200 <nil>
	// too large: 413
	// the other replica finds a <nil>
	// create b: <nil>
	// create c: limit host, 2 of 2 used
	// sweep a: stop, idle (idle: for 2m0s, over the timeout of 1m0s)
	// stop a: stopped <nil>
	// a third replica finds no a: true
}
