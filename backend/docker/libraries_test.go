package docker_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keepwell-go/keepwell/backend/docker"
)

// dynamic returns the path of a runner that needs libraries, as a plain go build makes it.
func dynamic(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("without gcc every program is static: ", err)
	}
	path := filepath.Join(t.TempDir(), "runner")
	cmd := exec.Command("go", "build", "-o", path, "github.com/keepwell-go/keepwell/backend/runner/cmd/runner")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	if err := docker.CheckStatic(path); err == nil || !strings.Contains(err.Error(), "CGO_ENABLED=0") {
		t.Fatalf("the runner of this test needs no libraries: %v", err)
	}
	return path
}

// A program as go run makes it serves sandboxes of an image that has no libraries. Commands do not inherit where those are that it
// took along, and the token is hidden as ever.
func TestARunnerTakesItsLibrariesAlong(t *testing.T) {
	w := newWorld(t, engine(t))
	cfg := w.config("dynamic")
	cfg.Runner = dynamic(t)
	b, err := w.openWith(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := spec("dynamic", "")
	sb := mustCreate(t, b, s)
	if out := sh(t, sb, "ls /lib /lib64; tr '\\0' ' ' </proc/1/cmdline"); !strings.Contains(out, "/lib64: No such file") ||
		!strings.Contains(out, "--library-path /.keepwell /.keepwell/runner -listen") {
		t.Errorf("inside it is %s", out)
	}
	if out := sh(t, sb, "env; tr '\\0' '\\n' </proc/1/environ"); strings.Contains(out, sb.Endpoint.Token) || strings.Contains(out, "LD_") {
		t.Errorf("a command sees %s", out)
	}
	mustDestroy(t, b, s.Ref)
}

// Programs whose libraries cannot be found are refused at once, and the refusal names the way out.
func TestARunnerWhoseLoaderIsNotHereIsRefused(t *testing.T) {
	path := dynamic(t)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f := bytes.Index(data, []byte("/ld-"))
	if f < 0 {
		t.Fatal("the program names no loader")
	}
	copy(data[f:], "/no-")
	if err := os.WriteFile(path, data, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err = docker.Open(docker.Config{Owner: "me", Key: []byte("0123456789abcdef"), Runner: path})
	for _, want := range []string{path, "needs libraries", "CGO_ENABLED=0", "/no-"} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("open: %v; want an error with %q", err, want)
		}
	}
}
