package memory_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
)

// plan is what the model says that an owner's id is: nothing at all if there is no plan.
type plan struct {
	instance, tenant, file string
	running, pinned        bool
}

func (p plan) String() string {
	return fmt.Sprintf("%s of %s, file %q, running %v, pinned %v", p.instance, p.tenant, p.file, p.running, p.pinned)
}

// twin is an engine beside its model: plain values, no locks, no transitions.
type twin struct {
	engine *memory.Engine
	plans  map[string]plan // by "owner/id"
	minted int
}

// trouble is what happens to one call.
type trouble string

const (
	none      trouble = "none"
	before    trouble = "fails before the effect"
	after     trouble = "fails after the effect"
	partial   trouble = "partial"
	cancelled trouble = "context has ended"
)

// call draws a trouble and makes the call under it. It returns whether the call takes effect and whether it must fail.
func (w *twin) call(t *rapid.T, name string, do func(context.Context) error) (effect, fails bool, how trouble) {
	troubles := []trouble{none, none, none, before, after, cancelled}
	if name == "destroy" {
		troubles = append(troubles, partial)
	}
	how = rapid.SampledFrom(troubles).Draw(t, "trouble")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	switch how {
	case before, after:
		defer w.engine.Inject(memory.Fault{Call: name, Err: errEngine, After: how == after})()
	case partial:
		defer w.engine.Inject(memory.Fault{Call: name, Partial: true})()
	case cancelled:
		cancel()
	}
	err := do(ctx)
	fails = how == before || how == after || how == cancelled
	if fails && err == nil {
		t.Fatalf("%s, %s: it succeeded", name, how)
	}
	return !fails || how == after, fails, how
}

func (w *twin) draw(t *rapid.T) (b *memory.Backend, k string, id string) {
	owner := rapid.SampledFrom([]string{"o1", "o2"}).Draw(t, "owner")
	id = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "id")
	return w.engine.Open(owner), owner + "/" + id, id
}

// ref draws the living instance, an old one or none that ever was.
func (w *twin) ref(t *rapid.T, k, id string) backend.Ref {
	instance := fmt.Sprint("i", rapid.IntRange(0, w.minted).Draw(t, "instance"))
	if p, ok := w.plans[k]; ok && rapid.Bool().Draw(t, "living") {
		instance = p.instance
	}
	return backend.Ref{ID: id, Instance: instance}
}

func (w *twin) create(t *rapid.T) {
	b, k, id := w.draw(t)
	w.minted++
	s := backend.Spec{Ref: backend.Ref{ID: id, Instance: fmt.Sprint("i", w.minted)}}
	s.Tenant = rapid.SampledFrom([]string{"t", "t", "u"}).Draw(t, "tenant")
	s.Pinned = rapid.Bool().Draw(t, "pinned")
	var made backend.Sandbox
	var got error
	effect, fails, how := w.call(t, "create", func(ctx context.Context) error {
		made, got = b.Create(ctx, s)
		return got
	})
	old, there := w.plans[k]
	conflict := there && (old.running || old.tenant != s.Tenant)
	if effect && conflict {
		if !errors.Is(got, backend.ErrConflict) {
			t.Fatalf("create over %v: got %v, want ErrConflict", old, got)
		}
		return
	}
	if (got != nil) != fails {
		t.Fatalf("create (%s): got %v", how, got)
	}
	if effect {
		w.plans[k] = plan{s.Instance, s.Tenant, old.file, true, s.Pinned}
	}
	if got == nil && (made.Ref != s.Ref || made.Resumed != there || !made.Running) {
		t.Fatalf("create over %v made %+v", old, made)
	}
}

// end is Stop and Destroy: what they leave of a plan differs, what they say does not.
func (w *twin) end(t *rapid.T, name string, do func(*memory.Backend, context.Context, backend.Ref) (backend.Outcome, error), left func(plan, trouble) (plan, bool)) {
	b, k, id := w.draw(t)
	r := w.ref(t, k, id)
	var out backend.Outcome
	var got error
	effect, fails, how := w.call(t, name, func(ctx context.Context) error {
		out, got = do(b, ctx, r)
		return got
	})
	p, there := w.plans[k]
	hit := there && p.instance == r.Instance && (p.running || name == "destroy")
	want := backend.Gone
	if hit {
		want = map[string]backend.Outcome{"stop": backend.Stopped, "destroy": backend.Stopped, "mark": backend.Marked}[name]
	}
	if fails || how == partial && hit {
		want = backend.Unknown
	}
	if out != want || (got != nil) != (want == backend.Unknown) {
		t.Fatalf("%s of %v (%s) where there is %v: got %s, %v; want %s", name, r, how, p, out, got, want)
	}
	if !effect || !hit {
		return
	}
	delete(w.plans, k)
	if p, ok := left(p, how); ok {
		w.plans[k] = p
	}
}

func (w *twin) stop(t *rapid.T) {
	w.end(t, "stop", (*memory.Backend).Stop, func(p plan, _ trouble) (plan, bool) { p.running = false; return p, true })
}

func (w *twin) destroy(t *rapid.T) {
	w.end(t, "destroy", (*memory.Backend).Destroy, func(p plan, how trouble) (plan, bool) {
		p.running = false
		return p, how == partial
	})
}

func (w *twin) mark(t *rapid.T) {
	pinned := rapid.Bool().Draw(t, "pinned")
	mark := func(b *memory.Backend, ctx context.Context, r backend.Ref) (backend.Outcome, error) {
		return b.Mark(ctx, r, pinned)
	}
	w.end(t, "mark", mark, func(p plan, _ trouble) (plan, bool) { p.pinned = pinned; return p, true })
}

func (w *twin) write(t *rapid.T) {
	b, k, id := w.draw(t)
	p, there := w.plans[k]
	p.file = rapid.StringMatching("[a-z]{1,3}").Draw(t, "file")
	if err := b.WriteFile(id, "f", []byte(p.file)); (err == nil) != there {
		t.Fatalf("write where there is %v: %v", p, err)
	}
	if there {
		w.plans[k] = p
	}
}

func (w *twin) accident(t *rapid.T) {
	b, k, id := w.draw(t)
	p, there := w.plans[k]
	var did bool
	if rapid.Bool().Draw(t, "remove") {
		if did = b.Remove(id); did {
			delete(w.plans, k)
		}
	} else if did = b.Kill(id); did {
		w.plans[k] = plan{p.instance, p.tenant, p.file, false, p.pinned}
	}
	if did != (there && p.running) {
		t.Fatalf("accident where there is %v: did it: %v", p, did)
	}
}

// agree compares everything that can be seen with the model.
func (w *twin) agree(t *rapid.T) {
	for _, owner := range []string{"o1", "o2"} {
		b := w.engine.Open(owner)
		snap, err := b.List(context.Background())
		if err != nil || !snap.Complete {
			t.Fatalf("list: complete %v, %v", snap.Complete, err)
		}
		seen := map[string]plan{}
		for _, s := range snap.Sandboxes {
			file, _ := b.ReadFile(s.ID, "f")
			seen[owner+"/"+s.ID] = plan{s.Instance, s.Tenant, string(file), s.Running, s.Pinned}
		}
		want := maps.Clone(w.plans)
		maps.DeleteFunc(want, func(k string, _ plan) bool { return !strings.HasPrefix(k, owner) })
		if !maps.Equal(seen, want) {
			t.Fatalf("listed %v, want %v (of %v)", seen, want, slices.Sorted(maps.Keys(w.plans)))
		}
	}
}

// R66, R83, R85: whatever is done in whatever order, and whatever fails, the engine is what a few plain values say that it is.
func TestEngineAgreesWithItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &twin{engine: memory.NewEngine(memory.Config{}), plans: map[string]plan{}}
		t.Repeat(map[string]func(*rapid.T){
			"create": w.create, "create again": w.create, "stop": w.stop, "destroy": w.destroy, "mark": w.mark,
			"write": w.write, "accident": w.accident, "": w.agree,
		})
	})
}
