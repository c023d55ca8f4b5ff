package docker_test

import (
	"errors"
	"testing"

	"github.com/keepwell-go/keepwell/backend"
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
