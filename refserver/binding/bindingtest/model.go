package bindingtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/refserver/binding"
)

// name is a public id of one incarnation.
type name struct {
	ref backend.Ref
	id  string
}

// span is what a model knows of a start: when it was and when it is over, which is its expiry until an earlier end is seen.
type span struct {
	at, over time.Duration
	ended    bool
}

// model is a Store as plainly as it can be said.
type model struct {
	starts   map[name]span
	bindings map[name]string
}

func (m *model) prune(cutoff time.Duration) (n int) {
	for k, s := range m.starts {
		if s.over <= cutoff {
			delete(m.starts, k)
			n++
		}
	}
	for k, bound := range m.bindings {
		if _, ok := m.starts[k]; !ok && bound == k.id {
			delete(m.bindings, k)
		}
	}
	return n
}

func (m *model) refs() map[backend.Ref]time.Time {
	refs := map[backend.Ref]time.Time{}
	for k := range m.bindings {
		refs[k.ref] = time.Time{}
	}
	for k, s := range m.starts {
		if at := epoch.Add(s.at); at.After(refs[k.ref]) {
			refs[k.ref] = at
		}
	}
	return refs
}

func (m *model) public(ref backend.Ref) map[string]string {
	public := map[string]string{}
	for k, bound := range m.bindings {
		if first, ok := public[bound]; k.ref == ref && (!ok || k.id < first) {
			public[bound] = k.id
		}
	}
	return public
}

// checkModel carries random sequences of calls out on the store and on the model.
func checkModel(t *testing.T, s binding.Store) {
	refs := []backend.Ref{box, again, other}
	rapid.Check(t, func(rt *rapid.T) {
		for _, ref := range refs { // of the last sequence
			if err := s.Forget(t.Context(), ref); err != nil {
				rt.Fatal(err)
			}
		}
		m := &machine{t.Context(), s, refs, []string{"p", "q", "r"}, &model{map[name]span{}, map[name]string{}}}
		rt.Repeat(map[string]func(*rapid.T){
			"begin": m.begin, "bind": m.bind, "end": m.end, "prune": m.prune, "forget": m.forget, "": m.same,
		})
	})
}

// machine does the same to a store and to a model of it.
type machine struct {
	ctx   context.Context
	store binding.Store
	refs  []backend.Ref
	ids   []string
	model *model
}

func (m *machine) name(t *rapid.T) name {
	return name{rapid.SampledFrom(m.refs).Draw(t, "ref"), rapid.SampledFrom(m.ids).Draw(t, "id")}
}

// moment returns one of the first minutes.
func moment(t *rapid.T) time.Duration {
	return time.Duration(rapid.IntRange(0, 12).Draw(t, "minute")) * time.Minute
}

func (m *machine) begin(t *rapid.T) {
	k, at := m.name(t), moment(t)
	life := moment(t)
	if _, ok := m.model.starts[k]; !ok {
		m.model.starts[k] = span{at: at, over: at + life}
	}
	fatal(t, m.store.Begin(m.ctx, binding.Start{Ref: k.ref, ID: k.id, At: epoch.Add(at), Expires: epoch.Add(at + life)}))
}

func (m *machine) bind(t *rapid.T) {
	k, bound := m.name(t), rapid.SampledFrom([]string{"p", "q", "m1", "m2"}).Draw(t, "bound")
	is, ok := m.model.bindings[k]
	err := m.store.Bind(m.ctx, k.ref, k.id, bound)
	if ok && is != bound {
		if !errors.Is(err, binding.ErrConflict) {
			t.Fatalf("bind %s to %s returned %v, and it is bound to %s", k.id, bound, err, is)
		}
		return
	}
	m.model.bindings[k] = bound
	fatal(t, err)
}

func (m *machine) end(t *rapid.T) {
	k, at := m.name(t), moment(t)
	if s, ok := m.model.starts[k]; ok && !s.ended {
		m.model.starts[k] = span{at: s.at, over: min(s.over, at), ended: true}
	}
	fatal(t, m.store.End(m.ctx, k.ref, k.id, epoch.Add(at)))
}

func (m *machine) prune(t *rapid.T) {
	cutoff := moment(t)
	want := m.model.prune(cutoff)
	if got, err := m.store.Prune(m.ctx, epoch.Add(cutoff)); err != nil || got != want {
		t.Fatalf("prune at %v removed %d, %v, want %d", cutoff, got, err, want)
	}
}

func (m *machine) forget(t *rapid.T) {
	ref := m.name(t).ref
	maps.DeleteFunc(m.model.starts, func(k name, _ span) bool { return k.ref == ref })
	maps.DeleteFunc(m.model.bindings, func(k name, _ string) bool { return k.ref == ref })
	fatal(t, m.store.Forget(m.ctx, ref))
}

// same compares all that can be seen of the two.
func (m *machine) same(t *rapid.T) {
	for _, ref := range m.refs {
		for _, id := range m.ids {
			if got, err := m.store.Bound(m.ctx, ref, id); err != nil || got != m.model.bindings[name{ref, id}] {
				t.Fatalf("%s of %v is bound to %q, %v, want %q", id, ref, got, err, m.model.bindings[name{ref, id}])
			}
		}
		want := m.model.public(ref)
		if got, err := m.store.Public(m.ctx, ref, []string{"m1", "m2", "p", "q", "r"}); err != nil || !maps.Equal(got, want) {
			t.Fatalf("public ids of %v are %v, %v, want %v", ref, got, err, want)
		}
	}
	got, err := m.store.Refs(m.ctx)
	if want := m.model.refs(); err != nil || !maps.EqualFunc(got, want, time.Time.Equal) {
		t.Fatalf("the incarnations are %v, %v, want %v", got, err, want)
	}
}

func fatal(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(fmt.Errorf("the store: %w", err))
	}
}
