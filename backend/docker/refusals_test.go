package docker_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/docker/enginetest"
)

// An image that no registry has is the caller's mistake, and nothing is made.
func TestAnImageThatDoesNotExistIsInvalid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	b, _ := w.new("noimage")
	s := spec("box", "")
	s.Image = "keepwell-test/nowhere:1"
	mend := w.proxy.Fault("manifest unknown", func(r *http.Request) enginetest.Verdict {
		if isPull(r) {
			return enginetest.Missing
		}
		return enginetest.Pass
	})
	defer func() { _ = mend() }()
	if _, err := b.Create(t.Context(), s); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), s.Image) || !strings.Contains(err.Error(), "manifest unknown") {
		t.Errorf("create: %v; want ErrInvalid that names the image and the reason", err)
	}
	if left, err := w.engine.Leftovers(t.Context(), "noimage"); len(left) > 0 || err != nil {
		t.Errorf("there is left %q, %v", left, err)
	}
}

// An image for other machines is refused before anything is made of it.
func TestAnImageForAnotherPlatformIsInvalid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	b, _ := w.new("foreign")
	s := spec("box", "")
	s.Image = "keepwell-test/foreign:1"
	w.loadImage(t, s.Image, "s390x")
	if _, err := b.Create(t.Context(), s); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), "linux/s390x") {
		t.Errorf("create: %v; want ErrInvalid that names the platform", err)
	}
	if left, err := w.engine.Leftovers(t.Context(), "foreign"); len(left) > 0 || err != nil {
		t.Errorf("there is left %q, %v", left, err)
	}
}

// loadImage gives the engine an image with an empty layer for some architecture.
func (w *world) loadImage(t *testing.T, name, arch string) {
	t.Helper()
	layer := make([]byte, 1024) // the end of an archive
	config := fmt.Sprintf(`{"architecture":%q,"os":"linux","config":{},"rootfs":{"type":"layers","diff_ids":["sha256:%x"]}}`, arch, sha256.Sum256(layer))
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for file, data := range map[string][]byte{
		"manifest.json": fmt.Appendf(nil, `[{"Config":"config.json","RepoTags":[%q],"Layers":["layer.tar"]}]`, name),
		"config.json":   []byte(config),
		"layer.tar":     layer,
	} {
		err := tw.WriteHeader(&tar.Header{Name: file, Mode: 0o644, Size: int64(len(data))})
		if err == nil {
			_, err = tw.Write(data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	resp, err := w.engine.API.ImageLoad(t.Context(), &buf)
	if err != nil {
		t.Fatal(err)
	}
	said := new(bytes.Buffer)
	_, _ = said.ReadFrom(resp)
	_ = resp.Close()
	if _, err := w.engine.API.ImageInspect(t.Context(), name); err != nil {
		t.Fatalf("the image is not there: %v; the engine said %s", err, said)
	}
	t.Cleanup(func() {
		if _, err := w.engine.API.ImageRemove(context.Background(), name, client.ImageRemoveOptions{Force: true}); err != nil {
			t.Errorf("remove image: %v", err)
		}
	})
}

// R104: what carries our owner's label and makes no sense otherwise is another tool's: not listed, not touched, and in nobody's way.
func TestWhatOnlyLooksLikeOursIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	b, _ := w.new("looks")
	mustCreate(t, b, spec("ours", ""))
	labels := map[string]string{
		"keepwell.owner": "looks", "keepwell.kind": "sandbox", "keepwell.id": "theirs", "keepwell.instance": "i1", "keepwell.created": "yesterday",
	}
	made, err := w.engine.API.ContainerCreate(t.Context(), client.ContainerCreateOptions{
		Name: "kw-looks-theirs", Config: &container.Config{Image: w.image(t), Cmd: []string{"true"}, Labels: labels},
	})
	if err != nil {
		t.Fatal(err)
	}
	labels["keepwell.kind"] = "workspace"
	if _, err = w.engine.API.VolumeCreate(t.Context(), client.VolumeCreateOptions{Name: "looks-like-ours", Labels: labels}); err != nil {
		t.Fatal(err)
	}
	snap, err := b.List(t.Context())
	if err != nil || len(snap.Sandboxes) != 1 || snap.Sandboxes[0].ID != "ours" {
		t.Errorf("listed are %+v, %v; want ours alone", snap.Sandboxes, err)
	}
	mustDestroy(t, b, spec("ours", "").Ref)
	if left, err := w.engine.Leftovers(t.Context(), "looks"); len(left) != 2 || err != nil {
		t.Errorf("there is left %q, %v; want what is theirs", left, err)
	}
	if _, err := w.engine.API.ContainerRemove(t.Context(), made.ID, client.ContainerRemoveOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := w.engine.API.VolumeRemove(t.Context(), "looks-like-ours", client.VolumeRemoveOptions{}); err != nil {
		t.Error(err)
	}
}

// R32: a runner that is published is so on 127.0.0.1 alone, and a network without a way out is one for the engine; the runner in it is
// reached nonetheless.
func TestPublishAndNoEgressDoWhatTheySay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	for _, owner := range []string{"published", "noegress"} {
		cfg := w.config(owner)
		cfg.Network, cfg.Publish, cfg.NoEgress = "", owner == "published", owner == "noegress"
		b, err := w.openWith(cfg)
		if err != nil {
			t.Fatal(err)
		}
		sb := mustCreate(t, b, spec("box", ""))
		at, err := netip.ParseAddrPort(sb.Endpoint.Address)
		if err != nil || at.Addr().IsLoopback() != cfg.Publish {
			t.Errorf("%s: the runner is at %s, %v", owner, sb.Endpoint.Address, err)
		}
		if out := sh(t, sb, "echo hello"); !strings.Contains(out, "hello") {
			t.Errorf("%s: a command says %s", owner, out)
		}
		w.isOnNetwork(t, sb.Ref, cfg.NoEgress)
		if snap, err := b.List(t.Context()); err != nil || len(snap.Sandboxes) != 1 || snap.Sandboxes[0].Endpoint != sb.Endpoint {
			t.Errorf("%s: listed as %+v, %v", owner, snap.Sandboxes, err)
		}
		mustDestroy(t, b, sb.Ref)
	}
}

// isOnNetwork wants a sandbox to be on one network, and to be published nowhere but on this machine itself.
func (w *world) isOnNetwork(t *testing.T, r backend.Ref, internal bool) {
	t.Helper()
	id, err := w.container(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := w.engine.API.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for port, to := range got.Container.NetworkSettings.Ports {
		for _, p := range to {
			if !p.HostIP.IsLoopback() {
				t.Errorf("port %v is published on %s", port, p.HostIP)
			}
		}
	}
	if n := len(got.Container.NetworkSettings.Networks); n != 1 {
		t.Errorf("it is on %d networks", n)
	}
	for _, n := range got.Container.NetworkSettings.Networks {
		is, err := w.engine.API.NetworkInspect(t.Context(), n.NetworkID, client.NetworkInspectOptions{})
		if err != nil || is.Network.Internal != internal {
			t.Errorf("its network is internal: %v, %v; want %v", is.Network.Internal, err, internal)
		}
	}
}
