package docker_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/moby/moby/client"

	"github.com/keepwell-go/keepwell/backend"
)

// What all sandboxes share is used by nothing while none runs, so whoever prunes the engine removes it. The next create makes it anew.
func TestWhatSandboxesShareIsMadeAnewAfterSomebodyHasRemovedIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	cfg := w.config("pruned")
	cfg.Network, cfg.Runner = "", anotherBuild(t, cfg.Runner)
	b, err := w.openWith(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := spec("box", "")
	var names []string
	for _, c := range []struct {
		what   string
		remove func(context.Context, []string) error
	}{
		{"network", func(ctx context.Context, _ []string) error {
			_, err := w.engine.API.NetworkRemove(ctx, "kw-pruned", client.NetworkRemoveOptions{})
			return err
		}},
		{"runner", w.removeVolumes},
		{"filled volume", func(ctx context.Context, names []string) error { return w.removeVolumes(ctx, names[1:]) }},
		{"named volume", func(ctx context.Context, names []string) error { return w.removeVolumes(ctx, names[:1]) }},
	} {
		sb := mustCreate(t, b, s)
		names = w.runners(t, sb.Ref)
		mustDestroy(t, b, s.Ref)
		if err := c.remove(t.Context(), names); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		sb = mustCreate(t, b, s)
		names = w.runners(t, sb.Ref)
		if out := sh(t, sb, "echo hello"); !strings.Contains(out, "hello") {
			t.Errorf("without its %s a sandbox says %s", c.what, out)
		}
		mustDestroy(t, b, s.Ref)
	}
	if err := w.removeVolumes(t.Context(), names[1:]); err != nil { // the other one is not needed before the next start
		t.Error(err)
	}
}

// anotherBuild returns a program that differs from path and does the same.
func anotherBuild(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	copied := filepath.Join(t.TempDir(), "runner")
	if err == nil {
		err = os.WriteFile(copied, append(data, '\n'), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return copied
}

// runners returns the volume that names the runner of a sandbox, and the one that has it.
func (w *world) runners(t *testing.T, r backend.Ref) []string {
	t.Helper()
	id, err := w.container(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := w.engine.API.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range got.Container.Mounts {
		if name, _, ok := strings.Cut(m.Name, "."); ok && strings.HasPrefix(name, "keepwell-runner-") {
			return []string{name, m.Name}
		}
	}
	t.Fatalf("no runner is among %+v", got.Container.Mounts)
	return nil
}

func (w *world) removeVolumes(ctx context.Context, names []string) error {
	for _, name := range names {
		if _, err := w.engine.API.VolumeRemove(ctx, name, client.VolumeRemoveOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// A workspace that somebody has removed leaves the mark on it. The next create is a fresh one, whose workspace its user can write to.
func TestAMarkWithoutAWorkspaceIsInNobodysWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	b, err := w.openWith(w.config("marks"))
	if err != nil {
		t.Fatal(err)
	}
	s := spec("marked", "")
	sb := mustCreate(t, b, s)
	if out, err := b.Mark(t.Context(), sb.Ref, true); out != backend.Marked || err != nil {
		t.Fatal(out, err)
	}
	id, err := w.container(t.Context(), s.Ref)
	if err == nil {
		err = w.removeBoth(t.Context(), id)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Instance = "i2"
	again := mustCreate(t, b, s)
	if out := sh(t, again, "echo new >/workspace/x && cat /workspace/x"); again.Resumed || again.Pinned || !strings.Contains(out, `new\n`) {
		t.Errorf("resumed %v, pinned %v; inside it is %s", again.Resumed, again.Pinned, out)
	}
	if n := w.volumesOf(t, "marks"); n != 1 {
		t.Errorf("the sandbox has %d volumes, want its workspace alone", n)
	}
	mustDestroy(t, b, s.Ref)
}

// hourAhead is the clock of a machine that is an hour ahead.
type hourAhead struct{ clock.Clock }

func (c hourAhead) Now() time.Time { return c.Clock.Now().Add(time.Hour) }

// R85, R105: however often a sandbox is resumed, and by a replica of whatever time, there is one mark, which says who ran last.
func TestResumesLeaveOneMarkWhichIsTheLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	cfg := w.config("resumes")
	b, err := w.openWith(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Clock = hourAhead{clock.New()}
	ahead, err := w.openWith(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := spec("box", "")
	mustCreate(t, b, s)
	for i, next := range []backend.Backend{b, ahead, b} {
		if out, err := b.Stop(t.Context(), s.Ref); out != backend.Stopped || err != nil {
			t.Fatal(out, err)
		}
		s.Instance = "i" + string(rune('2'+i))
		sb := mustCreate(t, next, s)
		if n := w.volumesOf(t, "resumes"); n != 2 {
			t.Errorf("after %d resumes the sandbox has %d volumes, want its workspace and a mark", i+1, n)
		}
		snap, err := b.List(t.Context(), s.ID)
		if err != nil || len(snap.Sandboxes) != 1 || !snap.Sandboxes[0].Renewed.Equal(sb.Renewed) {
			t.Errorf("listed as %+v, %v; want its lifetime to begin at %v", snap.Sandboxes, err, sb.Renewed)
		}
	}
	id, err := w.container(t.Context(), s.Ref)
	if err == nil {
		err = w.removeContainer(t.Context(), id)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := w.isListed(t, b, s.Ref); got != "stopped" {
		t.Errorf("it is listed as %s", got)
	}
	mustDestroy(t, b, s.Ref)
}

func (w *world) volumesOf(t *testing.T, owner string) int {
	t.Helper()
	got, err := w.engine.API.VolumeList(t.Context(), client.VolumeListOptions{Filters: client.Filters{}.Add("label", "keepwell.owner="+owner)})
	if err != nil {
		t.Fatal(err)
	}
	return len(got.Items)
}
