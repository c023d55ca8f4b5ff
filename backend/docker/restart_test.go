package docker_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/keepwell-go/keepwell/backend"
)

// restart restarts the engine with further flags.
func (w *world) restart(t *testing.T, flags string) {
	t.Helper()
	t.Setenv("ENGINE_FLAGS", flags)
	if err := w.engine.Run("restart"); err != nil {
		t.Fatal(err)
	}
}

// R2, R13, R83: a restart of the engine ends what runs, unless it is one that lets containers run on. Each is told as it is: never
// absent, and neither running when it has ended nor stopped when it has not.
func TestARestartOfTheEngineIsToldAsItIs(t *testing.T) {
	w := newWorld(t, engine(t))
	if w.engine.Dir == "" {
		t.Skip("the engine cannot be restarted")
	}
	b, _ := w.new("restarts")
	flags := os.Getenv("ENGINE_FLAGS")
	for _, c := range []struct {
		name, flags string
		state       string
		again       error // of a create of the id
		stop        backend.Outcome
	}{
		{"plain", "", "stopped", nil, backend.Gone},
		{"live", "--live-restore", "running", backend.ErrConflict, backend.Stopped},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.restart(t, flags+" "+c.flags)
			defer w.restart(t, flags)
			s := spec(c.name, "")
			sb := mustCreate(t, b, s)
			sh(t, sb, "echo kept >/workspace/x; echo here >/tmp/x")
			w.restart(t, flags+" "+c.flags)
			if got := w.isListed(t, b, s.Ref); got != c.state {
				t.Errorf("it is listed as %s, want %s", got, c.state)
			}
			next := s
			next.Instance = "i2"
			last, inside := s.Ref, "here"
			made, err := b.Create(t.Context(), next)
			if !errors.Is(err, c.again) {
				t.Errorf("create of the id: %v, want %v", err, c.again)
			}
			if err == nil {
				sb, last, inside = made, next.Ref, "No such file" // a new container, on the same workspace
			}
			defer mustDestroy(t, b, last)
			if out := sh(t, sb, "cat /workspace/x; cat /tmp/x 2>&1"); !strings.Contains(out, "kept") || !strings.Contains(out, inside) {
				t.Errorf("inside it is %s, want what was kept, and %q", out, inside)
			}
			if out, err := b.Stop(t.Context(), s.Ref); out != c.stop || err != nil {
				t.Errorf("stop is %v, %v; want %v", out, err, c.stop)
			}
		})
	}
}
