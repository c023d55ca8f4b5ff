package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
)

// base is what the sandboxes of an owner share on the engine.
type base struct {
	network string // its id
	runner  string // name of the volume that has the program
}

// once keeps the base after it was found or made.
type once struct {
	turn chan struct{} // capacity 1: full while somebody looks

	mu   sync.Mutex // guards the fields below
	done bool
	base base
}

func (o *once) get() (base, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.base, o.done
}

func (o *once) set(b base, done bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.base, o.done = b, done
}

// shared returns the base. The image, any one, is what the helper is made of that fills the runner's volume.
func (b *Backend) shared(ctx context.Context, image string) (base, error) {
	if got, ok := b.base.get(); ok {
		return got, nil
	}
	select {
	case b.base.turn <- struct{}{}:
		defer func() { <-b.base.turn }()
	case <-ctx.Done():
		return base{}, ctx.Err()
	}
	if got, ok := b.base.get(); ok {
		return got, nil
	}
	var made base
	var err error
	if made.network, err = b.network(ctx); err != nil {
		return base{}, unasked("network", err)
	}
	if made.runner, err = b.runnerVolume(ctx, image); err != nil {
		return base{}, unasked("runner volume", err)
	}
	b.base.set(made, true)
	return made, nil
}

// network returns the id of the network to join. An engine may make two networks of one name, so all replicas take the oldest.
func (b *Backend) network(ctx context.Context) (string, error) {
	if b.cfg.Network != "" {
		got, err := b.api.NetworkInspect(ctx, b.cfg.Network, client.NetworkInspectOptions{})
		return got.Network.ID, err
	}
	id, err := b.oldestNetwork(ctx)
	if id != "" || err != nil {
		return id, err
	}
	made, err := b.api.NetworkCreate(ctx, b.networkName(), client.NetworkCreateOptions{
		Driver: "bridge", Internal: b.cfg.NoEgress,
		Labels:  map[string]string{labelOwner: b.cfg.Owner, labelKind: kindNetwork},
		Options: map[string]string{"com.docker.network.bridge.enable_icc": "false"}, // sandboxes do not reach each other
	})
	if err != nil && !errdefs.IsConflict(err) {
		return "", err
	}
	if id, err = b.oldestNetwork(ctx); err != nil {
		return "", err
	}
	if id != made.ID && made.ID != "" {
		_, err = b.api.NetworkRemove(ctx, made.ID, client.NetworkRemoveOptions{})
	}
	return id, err
}

func (b *Backend) networkName() string {
	if b.cfg.NoEgress {
		return "kw-" + b.cfg.Owner + "-inside"
	}
	return "kw-" + b.cfg.Owner
}

func (b *Backend) oldestNetwork(ctx context.Context) (string, error) {
	got, err := b.api.NetworkList(ctx, client.NetworkListOptions{Filters: b.filter("")})
	if err != nil {
		return "", err
	}
	var oldest network.Summary
	for _, n := range got.Items {
		if n.Name == b.networkName() && (oldest.ID == "" || n.Created.Before(oldest.Created)) {
			oldest = n
		}
	}
	return oldest.ID, nil
}

// program is the runner as it is written to its volume.
type program struct {
	data []byte
	hash string // of data, which names the build
}

func readProgram(path string) (program, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return program{}, fmt.Errorf("docker: runner: %w", err)
	}
	if err := CheckStatic(path); err != nil {
		return program{}, err
	}
	sum := sha256.Sum256(data)
	return program{data, hex.EncodeToString(sum[:6])}, nil
}

// CheckStatic returns an error unless the file is a Linux program that needs nothing of the image it runs in.
func CheckStatic(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("docker: %s is no Linux program: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("docker: %s needs libraries that an image may lack; build it with CGO_ENABLED=0", path)
		}
	}
	return nil
}

// runnerVolume returns the volume that has the runner, and fills one if there is none. The volume that carries the build's name has
// no content: its label names the one that has, which was full before. To make a volume that exists gives the one that exists, so
// all replicas end with the same, and nobody mounts one that is half full.
func (b *Backend) runnerVolume(ctx context.Context, image string) (string, error) {
	name := "keepwell-runner-" + b.runner.hash
	got, err := b.api.VolumeInspect(ctx, name, client.VolumeInspectOptions{})
	if err == nil {
		return b.checkRunner(ctx, got.Volume.Labels[labelFilled])
	}
	if !errdefs.IsNotFound(err) {
		return "", err
	}
	mine := name + "." + rand.Text()[:8]
	if err := b.fillRunner(ctx, image, mine); err != nil {
		return "", errors.Join(err, b.removeVolume(context.WithoutCancel(ctx), mine))
	}
	made, err := b.api.VolumeCreate(ctx, client.VolumeCreateOptions{
		Name: name, Labels: map[string]string{labelKind: kindRunner, labelFilled: mine},
	})
	if err != nil {
		return "", err
	}
	filled := made.Volume.Labels[labelFilled]
	if filled != mine {
		_ = b.removeVolume(ctx, mine) // another replica's is as good
	}
	return filled, nil
}

// checkRunner makes sure that the volume is there: the engine would make an empty one where somebody has removed it.
func (b *Backend) checkRunner(ctx context.Context, filled string) (string, error) {
	got, err := b.api.VolumeInspect(ctx, filled, client.VolumeInspectOptions{})
	if err == nil && got.Volume.Labels[labelKind] == kindRunner {
		return filled, nil
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return "", err
	}
	return "", fmt.Errorf("the runner's volume %s was removed: remove keepwell-runner-%s too, and both are made anew", filled, b.runner.hash)
}

func (b *Backend) fillRunner(ctx context.Context, image, name string) error {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	err := w.WriteHeader(&tar.Header{Name: runnerFile, Mode: 0o555, Size: int64(len(b.runner.data))})
	if err == nil {
		_, err = w.Write(b.runner.data)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	labels := map[string]string{labelKind: kindRunner}
	return b.throughHelper(ctx, image, helper{labels: labels, volume: name, at: runnerDir, into: runnerDir}, &buf)
}

// helper is a container that is never started. Its mounts are there nonetheless when the engine unpacks an archive into it, so it
// writes to a volume, as root, without any program being run.
type helper struct {
	labels map[string]string
	volume string
	at     string // where the volume is mounted
	into   string // where the archive is unpacked
}

func (b *Backend) throughHelper(ctx context.Context, image string, h helper, archive *bytes.Buffer) error {
	labels := map[string]string{}
	for k, v := range h.labels {
		labels[k] = v
	}
	labels[labelKind] = kindHelper
	made, err := b.api.ContainerCreate(ctx, client.ContainerCreateOptions{
		Config: &container.Config{Image: image, Entrypoint: []string{"/never-started"}, Labels: labels},
		HostConfig: &container.HostConfig{
			NetworkMode: "none",
			Mounts: []mount.Mount{{
				Type: mount.TypeVolume, Source: h.volume, Target: h.at,
				VolumeOptions: &mount.VolumeOptions{NoCopy: true, Labels: h.labels},
			}},
		},
	})
	if err != nil {
		return fmt.Errorf("helper: %w", err)
	}
	_, err = b.api.CopyToContainer(ctx, made.ID, client.CopyToContainerOptions{DestinationPath: h.into, Content: archive, CopyUIDGID: false})
	if err != nil {
		err = fmt.Errorf("write to volume %s: %w", h.volume, err)
	}
	return errors.Join(err, b.removeContainer(context.WithoutCancel(ctx), made.ID))
}

// giveHome gives a fresh workspace to the user of its sandbox.
func (b *Backend) giveHome(ctx context.Context, c *creation) error {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "home/", Mode: 0o755, Uid: c.profile.UID, Gid: c.profile.GID})
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	const dir = "/.keepwell"
	return b.throughHelper(ctx, c.image.ID, helper{labels: b.labels(kindWorkspace, c.spec, c.created), volume: c.workspace, at: dir + "/home", into: dir}, &buf)
}
