package docker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// undoTime bounds how long a create that failed takes to remove what it made.
const undoTime = 20 * time.Second

// discard removes what this call made, and forgets it.
func (b *Backend) discard(ctx context.Context, c *creation) error {
	if c.container != "" {
		if err := b.removeContainer(ctx, c.container); err != nil {
			return err
		}
	}
	c.container = ""
	if c.resumes || c.workspace == "" {
		return nil
	}
	return b.removeVolume(ctx, c.workspace)
}

// undo removes what a failed create made and returns the error for its caller. A create whose context has ended leaves it to the
// caller, who knows the instance.
func (b *Backend) undo(ctx context.Context, c *creation, cause error) error {
	if errors.As(cause, new(errTaken)) && c.container == "" {
		return cause // the engine looks at the name before it makes anything
	}
	if ctx.Err() != nil {
		return unclear(cause)
	}
	ctx, cancel := b.cfg.Clock.WithTimeout(ctx, undoTime)
	defer cancel()
	if c.container == "" {
		if err := b.find(ctx, c); err != nil {
			return unclear(errors.Join(cause, err))
		}
	}
	if err := b.discard(ctx, c); err != nil {
		return unclear(errors.Join(cause, fmt.Errorf("undo: %w", err)))
	}
	return refused(unclear(cause))
}

// find looks for the container of a claim that got no clear answer.
func (b *Backend) find(ctx context.Context, c *creation) error {
	got, err := b.api.ContainerInspect(ctx, b.name(c.spec.ID), client.ContainerInspectOptions{})
	switch {
	case errdefs.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	if got.Container.Config != nil && got.Container.Config.Labels[labelCall] == c.call {
		c.container = got.Container.ID
	}
	return nil
}
