package docker_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/moby/moby/client"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/docker/enginetest"
)

// R27, R83, R85: a create that finds a workspace, and cannot remove its own before it moves in, leaves two. The older one, in which
// somebody has worked, stays the one that is listed and resumed; the other one goes with it, or with the create that made it.
func TestWhatAFailedMoveHasLeftNeitherHidesNorOutlivesTheWorkspace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	b, _ := w.new("orphans")
	for _, end := range []string{"resume", "destroy", "undo"} {
		first, failed, third := spec(end, ""), spec(end, ""), spec(end, "")
		failed.Instance, third.Instance = "i2", "i3"
		if err := writeFile(t.Context(), b, mustCreate(t, b, first), "kept", []byte("precious")); err != nil {
			t.Fatal(err)
		}
		id, err := w.container(t.Context(), first.Ref)
		if err == nil {
			err = w.removeContainer(t.Context(), id)
		}
		if err != nil {
			t.Fatal(err)
		}
		mend := w.proxy.Fault("device or resource busy", onWorkspaceRemoval)
		if _, err := b.Create(t.Context(), failed); err == nil || errors.Is(err, backend.ErrConflict) {
			t.Errorf("%s: create whose workspace stays: %v", end, err)
		}
		_ = mend()
		if got := w.isListed(t, b, first.Ref); got != "stopped" {
			t.Errorf("%s: the first instance is listed as %s", end, got)
		}
		last := first.Ref
		switch end {
		case "resume":
			if data, err := readFile(t.Context(), b, mustCreate(t, b, third), "kept"); string(data) != "precious" || err != nil {
				t.Errorf("the workspace holds %q, %v", data, err)
			}
			last = third.Ref
		case "undo":
			mustDestroy(t, b, failed.Ref)
			if left, err := w.engine.Leftovers(t.Context(), "orphans"); len(left) != 1 || err != nil {
				t.Errorf("beside the workspace there is left %q, %v", left, err)
			}
		}
		mustDestroy(t, b, last)
		if left, err := w.engine.Leftovers(t.Context(), "orphans"); len(left) > 0 || err != nil {
			t.Errorf("%s: there is left %q, %v", end, left, err)
		}
	}
}

// R85: a workspace that is destroyed while a create is about to take it over is made anew by the engine, as root's. The create gives it
// to its user, and does not say that it resumed.
func TestAWorkspaceThatIsDestroyedUnderACreateIsAFreshOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	b, err := w.openWith(w.config("under"))
	if err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func(context.Context, string) error{
		"removed": w.removeContainer,
		"stopped": func(ctx context.Context, id string) error {
			_, err := w.engine.API.ContainerStop(ctx, id, client.ContainerStopOptions{})
			return err
		},
	} {
		s := spec(name, "")
		mustCreate(t, b, s)
		id, err := w.container(t.Context(), s.Ref)
		if err != nil {
			t.Fatal(err)
		}
		got, err := w.engine.API.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
		if err == nil {
			err = end(t.Context(), id)
		}
		if err != nil {
			t.Fatal(err)
		}
		var claims atomic.Int64
		mend := w.proxy.Fault("", func(r *http.Request) enginetest.Verdict {
			if strings.HasPrefix(r.URL.Query().Get("name"), "kw-under-"+name) && claims.Add(1) == 2 { // the one on the old workspace
				if err := w.removeVolumes(context.Background(), []string{got.Container.Config.Labels["keepwell.volume"]}); err != nil {
					t.Error(err)
				}
			}
			return enginetest.Pass
		})
		s.Instance = "i2"
		sb := mustCreate(t, b, s)
		_ = mend()
		if out := sh(t, sb, "echo new >x && cat x"); sb.Resumed || !strings.Contains(out, `new\n`) {
			t.Errorf("%s: resumed %v; inside it is %s", name, sb.Resumed, out)
		}
		mustDestroy(t, b, s.Ref)
	}
}
