package local_test

import (
	"errors"
	"testing"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/local"
)

// open returns a Backend on dir whose host runner ends with the test.
func open(t testing.TB, dir string) *local.Backend {
	t.Helper()
	b, err := local.Open(local.Config{StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Close()
		if _, err := local.Down(t.Context(), local.Config{StateDir: dir}); err != nil && t.Context().Err() == nil {
			t.Errorf("down: %v", err)
		}
	})
	return b
}

func spec(id, instance string) backend.Spec {
	return backend.Spec{Ref: backend.Ref{ID: id, Instance: instance}, Tenant: "t"}
}

func TestSmoke(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	sb, err := b.Create(t.Context(), spec("a", "i1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", sb)
	if _, err := b.Create(t.Context(), spec("a", "i2")); !errors.Is(err, backend.ErrConflict) {
		t.Fatal(err)
	}
	t.Log(b.List(t.Context()))
	t.Log(b.Stop(t.Context(), sb.Ref))
	t.Log(b.Create(t.Context(), spec("a", "i2")))
	t.Log(b.Destroy(t.Context(), sb.Ref))
	t.Log(b.Destroy(t.Context(), backend.Ref{ID: "a", Instance: "i2"}))
	t.Log(b.List(t.Context()))
	t.Log(b.Down(t.Context()))
}
