package docker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/keepwell-go/keepwell/backend"
)

const (
	stopSeconds = 3                     // that a runner has to end its streams before it is killed
	goneEvery   = 20 * time.Millisecond // between two looks for something that is to be gone
)

// Stop implements [backend.Backend]. The exited container stays, as the label of the stopped sandbox.
func (b *Backend) Stop(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
	out, err := b.stop(ctx, r)
	if err != nil {
		return backend.Unknown, fmt.Errorf("docker: stop %q: %w", r.ID, err)
	}
	return out, nil
}

func (b *Backend) stop(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
	if err := r.Check(); err != nil {
		return backend.Unknown, err
	}
	bx, err := b.one(ctx, r.ID)
	if err != nil {
		return backend.Unknown, err
	}
	c := bx.container
	if c == nil || c.Labels[labelInstance] != r.Instance {
		return backend.Gone, nil
	}
	switch c.State {
	case container.StateExited, container.StateDead, container.StateRemoving:
		return backend.Gone, nil
	case container.StateCreated:
		return b.stopUnstarted(ctx, bx)
	case container.StatePaused: // the engine stops nothing that is paused
		err = b.kill(ctx, c.ID)
	default:
		timeout := stopSeconds
		_, err = b.api.ContainerStop(ctx, c.ID, client.ContainerStopOptions{Timeout: &timeout})
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return backend.Unknown, unclear(err)
	}
	return backend.Stopped, nil
}

// kill ends a paused container and returns when it has exited.
func (b *Backend) kill(ctx context.Context, id string) error {
	if _, err := b.api.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{}); err != nil && !errdefs.IsConflict(err) {
		return err
	}
	zero := 0
	_, err := b.api.ContainerStop(ctx, id, client.ContainerStopOptions{Timeout: &zero})
	return err
}

// stopUnstarted ends a create that got no further than its container. If it made the workspace as well nothing was ever in there.
func (b *Backend) stopUnstarted(ctx context.Context, bx *box) (backend.Outcome, error) {
	c := bx.container
	if err := b.removeHelpers(ctx, bx, c.Labels[labelInstance]); err != nil {
		return backend.Unknown, err
	}
	if err := b.removeContainer(ctx, c.ID); err != nil {
		return backend.Unknown, unclear(err)
	}
	for _, w := range bx.workspaces {
		if w.name == c.Labels[labelVolume] && w.sandbox.Instance == c.Labels[labelInstance] {
			if err := b.removeVolume(ctx, w.name); err != nil {
				return backend.Unknown, unclear(err)
			}
		}
	}
	return backend.Stopped, nil
}

// Destroy implements [backend.Backend]. It is over when neither container nor volumes can be found any more. A workspace that stays
// is listed as a stopped sandbox, and Destroy can be called again.
func (b *Backend) Destroy(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
	out, err := b.destroy(ctx, r)
	if err != nil {
		return backend.Unknown, fmt.Errorf("docker: destroy %q: %w", r.ID, err)
	}
	return out, nil
}

func (b *Backend) destroy(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
	if err := r.Check(); err != nil {
		return backend.Unknown, err
	}
	bx, err := b.one(ctx, r.ID)
	if err != nil {
		return backend.Unknown, err
	}
	workspace := ""
	if bx.container != nil {
		if bx.container.Labels[labelInstance] != r.Instance {
			return backend.Gone, nil
		}
		workspace = bx.container.Labels[labelVolume]
		if err := b.removeContainer(ctx, bx.container.ID); err != nil {
			return backend.Unknown, unclear(err)
		}
	} else if workspace = bx.workspaceOf(r.Instance); workspace == "" {
		return backend.Gone, nil
	}
	return b.empty(ctx, bx, r, workspace)
}

// empty removes a workspace, after what goes with it and before the marks on it, which say until the end whose it was.
func (b *Backend) empty(ctx context.Context, bx *box, r backend.Ref, workspace string) (backend.Outcome, error) {
	if err := b.removeHelpers(ctx, bx, r.Instance); err != nil {
		return backend.Unknown, unclear(err)
	}
	for _, name := range append(bx.beside(workspace), workspace) {
		if err := b.removeVolume(ctx, name); errdefs.IsConflict(err) {
			return b.takenOver(ctx, r, err)
		} else if err != nil {
			return backend.Unknown, unclear(fmt.Errorf("its workspace stays: %w", err))
		}
	}
	for _, m := range bx.marks {
		if m.of != workspace {
			continue
		}
		if err := b.removeVolume(ctx, m.name); err != nil {
			return backend.Unknown, unclear(fmt.Errorf("a mark on its workspace stays: %w", err))
		}
	}
	return backend.Stopped, nil
}

// takenOver says whether a workspace that is in use is that of a later instance by now.
func (b *Backend) takenOver(ctx context.Context, r backend.Ref, cause error) (backend.Outcome, error) {
	bx, err := b.one(ctx, r.ID)
	if err != nil {
		return backend.Unknown, errors.Join(unclear(cause), err)
	}
	if bx.container != nil && bx.container.Labels[labelInstance] != r.Instance {
		return backend.Gone, nil
	}
	return backend.Unknown, unclear(fmt.Errorf("its workspace stays: %w", cause))
}

func (b *Backend) removeHelpers(ctx context.Context, bx *box, instance string) error {
	for id, of := range bx.helpers {
		if of == instance {
			if err := b.removeContainer(ctx, id); err != nil {
				return fmt.Errorf("a helper stays: %w", err)
			}
		}
	}
	return nil
}

// removeContainer returns when the container cannot be found any more. An engine that is removing it already says conflict.
func (b *Backend) removeContainer(ctx context.Context, id string) error {
	_, err := b.api.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) {
		return err
	}
	for {
		_, lerr := b.api.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		if errdefs.IsNotFound(lerr) {
			return nil
		}
		if lerr != nil {
			return lerr
		}
		if serr := b.sleep(ctx, goneEvery); serr != nil {
			return errors.Join(fmt.Errorf("the container stays: %w", serr), err)
		}
	}
}

func (b *Backend) removeVolume(ctx context.Context, name string) error {
	_, err := b.api.VolumeRemove(ctx, name, client.VolumeRemoveOptions{})
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
