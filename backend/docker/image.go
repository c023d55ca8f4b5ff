package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/keepwell-go/keepwell/backend"
)

// repository is where the images go that are made here.
const repository = "keepwell/sandbox"

// image is one that the engine has.
type image struct {
	ID           string
	name         string
	env          []string
	workspaceUID string // whom the workspace belongs to that the image brings; "": it brings none
}

// Prepare makes sure that the engine has an image and the runner, so that the first create need not wait, and returns the image's
// name: that of Config.Image for "", or of the one made here. It waits for a fetch until ctx ends.
func (b *Backend) Prepare(ctx context.Context, name string) (string, error) {
	for {
		got, err := b.prepareImage(ctx, name)
		if err == nil || !errors.Is(err, backend.ErrPreparing) || ctx.Err() != nil {
			return got.name, err
		}
	}
}

func (b *Backend) prepareImage(ctx context.Context, name string) (image, error) {
	if err := b.agree(ctx); err != nil {
		return image{}, err
	}
	got, err := b.image(ctx, name)
	if err == nil {
		_, err = b.shared(ctx, got.ID)
	}
	if err != nil {
		return image{}, fmt.Errorf("docker: prepare: %w", err)
	}
	return got, nil
}

// image returns the image of that name, of Config.Image or of the one made here for "". One that the engine lacks is fetched.
func (b *Backend) image(ctx context.Context, name string) (image, error) {
	if name == "" {
		name = b.cfg.Image
	}
	get := b.pull
	if name == "" {
		made, err := b.makeImage()
		if err != nil {
			return image{}, err
		}
		name, get = made.name, made.load
	}
	got, err := b.inspect(ctx, name)
	if !errdefs.IsNotFound(err) {
		return got, err
	}
	if err := b.fetch(ctx, name, get); err != nil {
		return image{}, err
	}
	return b.inspect(ctx, name)
}

func (b *Backend) inspect(ctx context.Context, name string) (image, error) {
	got, err := b.api.ImageInspect(ctx, name)
	switch {
	case errdefs.IsInvalidArgument(err):
		return image{}, fmt.Errorf("image %q: %w: %w", name, backend.ErrInvalid, err)
	case err != nil:
		return image{}, unasked("image", err)
	case got.Os != "" && got.Os != "linux" || got.Architecture != "" && got.Architecture != runtime.GOARCH:
		return image{}, fmt.Errorf("%w: image %q is for %s/%s, the runner for linux/%s", backend.ErrInvalid, name, got.Os, got.Architecture, runtime.GOARCH)
	}
	found := image{ID: got.ID, name: name}
	if got.Config != nil {
		found.env, found.workspaceUID = got.Config.Env, got.Config.Labels[labelUID]
	}
	return found, nil
}

// madeImage is an image that needs no registry: directories, names of users, and a shell if there is one.
type madeImage struct {
	name string
	root []byte // tar
	uid  int
	b    *Backend
}

// makeImage makes it once: reading, packing and hashing the shell takes longer than all else that a create does here.
func (b *Backend) makeImage() (madeImage, error) {
	if made := b.made.Load(); made != nil {
		return *made, nil
	}
	p, err := backend.ProfileOf(backend.ProfileDefault)
	if err != nil {
		return madeImage{}, err
	}
	var shell []byte
	if b.cfg.Shell != "" {
		if shell, err = os.ReadFile(b.cfg.Shell); err != nil {
			return madeImage{}, fmt.Errorf("%w: shell of the image: %w", backend.ErrInvalid, err)
		}
	}
	root, err := rootOf(p, shell)
	if err != nil {
		return madeImage{}, err
	}
	sum := sha256.Sum256(root)
	made := madeImage{repository + ":" + hex.EncodeToString(sum[:6]), root, p.UID, b}
	b.made.Store(&made)
	return made, nil
}

// rootOf returns the file system of the image. Its workspace belongs to the default profile, which the engine copies to a fresh
// volume, owner and all.
func rootOf(p backend.Profile, shell []byte) ([]byte, error) {
	var buf bytes.Buffer
	buf.Grow(len(shell) + 64<<10) // for all else
	w := tar.NewWriter(&buf)
	var errs []error
	add := func(h tar.Header, data []byte) {
		h.Size = int64(len(data))
		errs = append(errs, w.WriteHeader(&h))
		_, err := w.Write(data)
		errs = append(errs, err)
	}
	for _, dir := range []string{"bin/", "dev/", "etc/", "proc/", "sys/", "usr/", "usr/bin/"} {
		add(tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}, nil)
	}
	add(tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}, nil) // a tmpfs takes over the mode
	add(tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(p.Workspace, "/") + "/", Mode: 0o755, Uid: p.UID, Gid: p.GID}, nil)
	add(tar.Header{Name: "etc/passwd", Mode: 0o644}, []byte("root:x:0:0::/:/bin/sh\nagent:x:1000:1000::/workspace:/bin/sh\ndefault:x:65534:65534::/workspace:/bin/sh\n"))
	add(tar.Header{Name: "etc/group", Mode: 0o644}, []byte("root:x:0:\nagent:x:1000:\ndefault:x:65534:\n"))
	if len(shell) > 0 {
		add(tar.Header{Name: "bin/busybox", Mode: 0o755}, shell)
		for _, name := range strings.Fields(applets) {
			add(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "busybox"}, nil)
		}
	}
	errs = append(errs, w.Close())
	return buf.Bytes(), errors.Join(errs...)
}

// applets are the names under which busybox is in the image.
const applets = `sh ash awk base64 basename cat chmod cp cut date dd df dirname du echo env expr false find free grep gunzip gzip head
hostname id kill ln ls md5sum mkdir mkfifo mktemp mv nc nice nohup nslookup od ping printf ps pwd readlink realpath rm rmdir sed seq
setsid sha256sum sleep sort stat sync tail tar tee test time timeout top touch tr true tty uname uniq unzip vi wc wget which whoami
xargs yes`

// load gives the image to the engine, which names it when it has all of it.
func (m madeImage) load(ctx context.Context, name string) error {
	resp, err := m.b.api.ImageImport(ctx, client.ImageImportSource{Source: bytes.NewReader(m.root), SourceName: "-"}, name, client.ImageImportOptions{
		Message: "made by keepwell",
		Changes: []string{fmt.Sprintf("LABEL %s=%d", labelUID, m.uid)},
	})
	if err != nil {
		return err
	}
	defer resp.Close()
	_, err = io.Copy(io.Discard, resp)
	return err
}
