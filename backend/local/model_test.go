//go:build linux

package local_test

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/local"
)

// modelBox is what the model knows of one id; a zero one is not there.
type modelBox struct {
	instance string
	running  bool
	pinned   bool
	file     string // what its workspace has
	uid      string
}

// model drives one state directory, of which it is the only user, and says after each step what there has to be.
type model struct {
	t     testing.TB
	dir   string
	b     *local.Backend
	boxes map[string]*modelBox
	count int
}

// R2, R29, R83, R85, R101, R105: whatever is done in whatever order, with crashes and restarts of the host in between, the list
// is true, workspaces are kept and deleted as told, and stale instances end nothing.
func TestRandomLivesOfSandboxesMatchAModel(t *testing.T) {
	checks := flag.Lookup("rapid.checks")
	before := checks.Value.String()
	if err := checks.Value.Set("6"); err != nil { // a step is not cheap: processes start, disks are synced
		t.Fatal(err)
	}
	defer func() { _ = checks.Value.Set(before) }()
	dir := shortDir(t)
	m := &model{t: t, dir: dir, b: open(t, dir)}
	defer func() { m.b.Close() }()
	rapid.Check(t, func(r *rapid.T) {
		m.boxes = map[string]*modelBox{}
		defer m.clear(r)
		r.Repeat(map[string]func(*rapid.T){
			"":              m.check,
			"create":        m.create,
			"create again":  m.create,
			"stop":          m.stop,
			"destroy":       m.destroy,
			"mark":          m.mark,
			"stale":         m.stale,
			"crash":         m.crash,
			"another opens": m.another,
		})
	})
}

func (m *model) id(r *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r, "id")
}

// ref returns an id with the instance that it has, or had, or never had.
func (m *model) ref(r *rapid.T) (backend.Ref, *modelBox) {
	id := m.id(r)
	if box := m.boxes[id]; box != nil {
		return backend.Ref{ID: id, Instance: box.instance}, box
	}
	return backend.Ref{ID: id, Instance: "never"}, nil
}

func (m *model) create(r *rapid.T) {
	id := m.id(r)
	m.count++
	s := spec(id, fmt.Sprintf("i%d", m.count))
	got, err := m.b.Create(m.t.Context(), s)
	box := m.boxes[id]
	if box != nil && box.running {
		if !errors.Is(err, backend.ErrConflict) {
			r.Fatalf("create of the running %s: error %v, want a conflict", id, err)
		}
		return
	}
	if err != nil || got.Resumed != (box != nil) {
		r.Fatalf("create of %s: error %v, resumed %v; want resumed %v", id, err, got.Resumed, box != nil)
	}
	next := &modelBox{instance: s.Instance, running: true, file: s.Instance}
	if box != nil {
		if have := must(m.t, got, "cat file; id -u"); have != box.file+"\n"+box.uid {
			r.Fatalf("the resumed %s has %q, want %q", id, have, box.file+"\n"+box.uid)
		}
	}
	next.uid = must(m.t, got, "test -e file || echo new; echo "+next.file+" >file; id -u")
	if box == nil {
		if next.uid[:4] != "new\n" {
			r.Fatalf("the new %s has a file", id)
		}
		next.uid = next.uid[4:]
	}
	m.boxes[id] = next
}

func (m *model) stop(r *rapid.T) {
	ref, box := m.ref(r)
	want := backend.Gone
	if box != nil && box.running {
		want, box.running = backend.Stopped, false
	}
	out, err := m.b.Stop(m.t.Context(), ref)
	wants(r, "stop", out, err, want)
}

func (m *model) destroy(r *rapid.T) {
	ref, box := m.ref(r)
	want := backend.Gone
	if box != nil {
		want = backend.Stopped
		delete(m.boxes, ref.ID)
	}
	out, err := m.b.Destroy(m.t.Context(), ref)
	wants(r, "destroy", out, err, want)
}

func (m *model) mark(r *rapid.T) {
	ref, box := m.ref(r)
	want := backend.Gone
	pinned := rapid.Bool().Draw(r, "pinned")
	if box != nil && box.running {
		want, box.pinned = backend.Marked, pinned
	}
	out, err := m.b.Mark(m.t.Context(), ref, pinned)
	wants(r, "mark", out, err, want)
}

func (m *model) stale(r *rapid.T) {
	ref := backend.Ref{ID: m.id(r), Instance: "stale"}
	out, err := m.b.Stop(m.t.Context(), ref)
	wants(r, "stale stop", out, err, backend.Gone)
	out, err = m.b.Destroy(m.t.Context(), ref)
	wants(r, "stale destroy", out, err, backend.Gone)
	out, err = m.b.Mark(m.t.Context(), ref, true)
	wants(r, "stale mark", out, err, backend.Gone)
}

func (m *model) crash(r *rapid.T) {
	if rapid.IntRange(0, 3).Draw(r, "whether") > 0 {
		r.Skip("crashes are rare")
	}
	if err := killHost(m.dir); err != nil {
		r.Fatal(err)
	}
	for _, box := range m.boxes {
		box.running = false
	}
}

// another lets a second replica go on.
func (m *model) another(r *rapid.T) {
	next, err := local.Open(local.Config{StateDir: m.dir})
	if err != nil {
		r.Fatal(err)
	}
	m.b.Close()
	m.b = next
}

func (m *model) check(r *rapid.T) {
	snap, err := m.b.List(m.t.Context())
	if err != nil || !snap.Complete {
		r.Fatalf("list: complete %v, error %v", snap.Complete, err)
	}
	var got, want []string
	for _, s := range snap.Sandboxes {
		got = append(got, fmt.Sprint(s.ID, " ", s.Instance, " ", s.Running, " ", s.Pinned))
	}
	for id, box := range m.boxes {
		want = append(want, fmt.Sprint(id, " ", box.instance, " ", box.running, " ", box.pinned))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.Fatalf("listed are %q, want %q", got, want)
	}
	onDisk, err := ids(m.dir)
	if err != nil || len(onDisk) != len(want) {
		r.Fatalf("the disk has %q, error %v; want %q", onDisk, err, want)
	}
}

// clear makes room for the next run.
func (m *model) clear(r *rapid.T) {
	snap, err := m.b.List(m.t.Context())
	if err != nil {
		r.Error(err)
	}
	for _, s := range snap.Sandboxes {
		if out, err := m.b.Destroy(m.t.Context(), s.Ref); err != nil {
			r.Errorf("destroy of %s: %s, error %v", s.ID, out, err)
		}
	}
}

func wants(r *rapid.T, call string, out backend.Outcome, err error, want backend.Outcome) {
	if out != want || err != nil {
		r.Fatalf("%s: %s, error %v; want %s", call, out, err, want)
	}
}
