package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
)

// helper is a container that is never started. Its mounts are there nonetheless when the engine unpacks an archive into it, so it
// writes to a volume, as root, without any program being run.
type helper struct {
	labels map[string]string
	volume string
	at     string // where the volume is mounted
	into   string // where the archive is unpacked
}

func (b *Backend) throughHelper(ctx context.Context, image string, h helper, archive *bytes.Buffer) error {
	labels := maps.Clone(h.labels)
	labels[labelKind] = kindHelper
	name := helperOf(h.volume) // like the volume's it is this call's alone, so that it can be removed whatever the engine answered
	_, err := b.api.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name:   name,
		Config: &container.Config{Image: image, Entrypoint: []string{"/never-started"}, Labels: labels},
		HostConfig: &container.HostConfig{
			NetworkMode: "none",
			Mounts: []mount.Mount{{
				Type: mount.TypeVolume, Source: h.volume, Target: h.at,
				VolumeOptions: &mount.VolumeOptions{NoCopy: true, Labels: h.labels},
			}},
		},
	})
	if err == nil {
		_, err = b.api.CopyToContainer(ctx, name, client.CopyToContainerOptions{DestinationPath: h.into, Content: archive})
	}
	if err != nil {
		err = fmt.Errorf("write to volume %s: %w", h.volume, err)
	}
	ctx, cancel := b.cfg.Clock.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	return errors.Join(err, b.removeContainer(ctx, name))
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

func helperOf(volume string) string { return volume + ".helper" }
