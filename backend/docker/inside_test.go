package docker_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// run runs a command in a sandbox and returns the events that its runner sent.
func run(t testing.TB, s backend.Sandbox, c wire.Command) string {
	t.Helper()
	body, err := json.Marshal(wire.StartRequest{Cmd: c})
	if err != nil {
		t.Fatal(err)
	}
	out, err := inside(t.Context(), s, http.MethodPost, "exec", bytes.NewReader(body))
	if err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
	return string(out)
}

func sh(t testing.TB, s backend.Sandbox, line string) string {
	return run(t, s, wire.Command{Line: line})
}

// R32, R103: what a sandbox is given, as the engine has it and as it looks from inside.
func TestASandboxIsLockedDown(t *testing.T) {
	t.Setenv("KEEPWELL_CANARY", "of the server")
	w := newWorld(t, engine(t))
	b, _ := w.new("locked")
	for profile, user := range map[string]string{backend.ProfileDefault: "65534:65534", backend.ProfileAgent: "1000:1000"} {
		s := spec("p-"+profile, profile)
		s.MemoryMB, s.CPUs, s.PIDs, s.Env = 64, 0.5, 50, map[string]string{"GIVEN": "yes"}
		sb := mustCreate(t, b, s)
		w.isConfined(t, s, user)
		for line, want := range map[string]string{
			"id -u": strings.Split(user, ":")[0] + `\n`,
			"grep -c '^Cap.*0000000000000000' /proc/self/status": `5\n`, // no capability in any set
			"grep NoNewPrivs /proc/self/status":                  `NoNewPrivs:\t1\n`,
			"touch /x /bin/x":                                    "Read-only file system",
			"touch /.keepwell/x":                                 "Read-only file system",
			"echo ok >/tmp/x && cat /tmp/x":                      `ok\n`,
			"echo ok >/workspace/x && cat /workspace/x":          `ok\n`,
			"echo $GIVEN$KEEPWELL_CANARY":                        `"yes\n`,
			"ls /var/run/docker.sock":                            "No such file",
			"env; cat /proc/1/environ | tr '\\0' ' '":            "GIVEN",
		} {
			out := sh(t, sb, line)
			if !strings.Contains(out, want) {
				t.Errorf("%s: %s gives %s; want %s", profile, line, out, want)
			}
			if strings.Contains(out, sb.Endpoint.Token) {
				t.Errorf("%s: %s shows the runner's token", profile, line)
			}
		}
		mustDestroy(t, b, s.Ref)
	}
}

func (w *world) isConfined(t *testing.T, s backend.Spec, user string) {
	t.Helper()
	id, err := w.container(t.Context(), s.Ref)
	if err != nil {
		t.Fatal(err)
	}
	got, err := w.engine.API.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h := got.Container.HostConfig
	have := fmt.Sprint(got.Container.Config.User, h.Privileged, h.CapAdd, h.CapDrop, h.SecurityOpt, h.ReadonlyRootfs, h.Memory, h.MemorySwap, h.NanoCPUs, *h.PidsLimit, h.Binds)
	want := fmt.Sprint(user, false, []string(nil), []string{"ALL"}, []string{"no-new-privileges"}, true, 64<<20, 64<<20, int64(5e8), 50, []string(nil))
	if have != want {
		t.Errorf("the engine has %s, want %s", have, want)
	}
	if args := fmt.Sprint(got.Container.Path, got.Container.Args); strings.Contains(args, "TOKEN") || len(got.Container.Mounts) != 2 {
		t.Errorf("the runner is started by %s with mounts %+v", args, got.Container.Mounts)
	}
}

// importImage makes an image of one file.
func (w *world) importImage(t *testing.T, name string, changes ...string) {
	t.Helper()
	var root bytes.Buffer
	tw := tar.NewWriter(&root)
	err := tw.WriteHeader(&tar.Header{Name: "greeting", Mode: 0o644, Size: 2})
	if err == nil {
		_, err = tw.Write([]byte("hi"))
	}
	if err = errors.Join(err, tw.Close()); err != nil {
		t.Fatal(err)
	}
	resp, err := w.engine.API.ImageImport(t.Context(), client.ImageImportSource{Source: &root, SourceName: "-"}, name, client.ImageImportOptions{Changes: changes})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp)
	_ = resp.Close()
	t.Cleanup(func() {
		if _, err := w.engine.API.ImageRemove(context.Background(), name, client.ImageRemoveOptions{Force: true}); err != nil {
			t.Errorf("remove image: %v", err)
		}
	})
}

// Any image works: without a shell, with a user nobody knows, an entry point that is not there, a health check and volumes of its own.
func TestAnImageHasNoSayInHowItIsRun(t *testing.T) {
	w := newWorld(t, engine(t))
	b, _ := w.new("images")
	w.importImage(t, "keepwell-test/odd:1", "USER nobody-knows", `ENTRYPOINT ["/missing"]`, "VOLUME /data /workspace/deep", "ENV PATH=/own OWN=1", "HEALTHCHECK CMD false",
		"LABEL keepwell.owner=somebody", "LABEL keepwell.kind=helper")
	mustCreate(t, b, spec("first", "")) // the runner's volume stays
	mustDestroy(t, b, spec("first", "").Ref)
	before := volumes(t, w)
	s := spec("odd", "")
	s.Image = "keepwell-test/odd:1"
	sb := mustCreate(t, b, s)
	if out := run(t, sb, wire.Command{Argv: []string{"/.keepwell/runner", "-help"}}); !strings.Contains(out, "-listen") {
		t.Errorf("a program is started as %s", out)
	}
	if err := writeFile(t.Context(), b, sb, "f", []byte("x")); err != nil {
		t.Error(err)
	}
	if got, err := b.List(t.Context(), "odd"); err != nil || len(got.Sandboxes) != 1 || got.Sandboxes[0].Image != s.Image {
		t.Errorf("listed as %+v, %v", got, err)
	}
	mustDestroy(t, b, s.Ref)
	if after := volumes(t, w); after != before {
		t.Errorf("there were %d volumes before, and %d after", before, after)
	}
}

func volumes(t *testing.T, w *world) int {
	t.Helper()
	got, err := w.engine.API.VolumeList(t.Context(), client.VolumeListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return len(got.Items)
}

// What the engine refuses is the caller's mistake, said in the engine's words, and leaves nothing.
func TestLimitsThatTheEngineRefusesAreInvalid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	b, _ := w.new("refused")
	for want, spoil := range map[string]func(*backend.Spec){
		"memory limit":                       func(s *backend.Spec) { s.MemoryMB = 1 },
		"memory limit of 17592186044416 MiB": func(s *backend.Spec) { s.MemoryMB = 1 << 44 }, // in bytes 0, which is none
		"CPUs":                               func(s *backend.Spec) { s.CPUs = 4096 },
		"limit of 1e-10 CPUs":                func(s *backend.Spec) { s.CPUs = 1e-10 },
		"limit of 1e+10 CPUs":                func(s *backend.Spec) { s.CPUs = 1e10 },
		"reference":                          func(s *backend.Spec) { s.Image = "Not An Image" },
	} {
		s := spec("refused", "")
		spoil(&s)
		_, err := b.Create(t.Context(), s)
		if !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want ErrInvalid about %s", err, want)
		}
	}
	if left, err := w.engine.Leftovers(t.Context(), "refused"); len(left) > 0 || err != nil {
		t.Errorf("there is left %q, %v", left, err)
	}
}

// A runner that ends at once is not waited for, and its own words are in the error.
func TestARunnerThatEndsAtOnceIsToldWithItsLastLines(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	cfg := w.config("ends")
	cfg.RunnerArgs = []string{"-no-such-flag"}
	b, err := w.openWith(cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Create(t.Context(), spec("ends", ""))
	if err == nil || !strings.Contains(err.Error(), "ended at once") || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("create: %v", err)
	}
	if left, err := w.engine.Leftovers(t.Context(), "ends"); len(left) > 0 || err != nil {
		t.Errorf("there is left %q, %v", left, err)
	}
}
