package docker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/keepwell-go/keepwell/backend"
)

// undoTime bounds how long a create that failed takes to remove what it made.
const undoTime = 20 * time.Second

// creation is one call of Create on its way.
type creation struct {
	spec    backend.Spec
	profile backend.Profile
	created time.Time
	call    string // of this call alone
	image   image
	base    base

	container string // its id, once the name is this call's
	workspace string // name of the volume
	resumes   bool   // the workspace was there before
}

// Create implements [backend.Backend]. A sandbox is ready when its runner has answered.
func (b *Backend) Create(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
	c := &creation{spec: s, call: rand.Text()}
	if err := b.prepare(ctx, c); err != nil {
		return backend.Sandbox{}, fmt.Errorf("docker: create %q: %w", s.ID, err)
	}
	sb, err := b.create(ctx, c)
	if err != nil {
		return backend.Sandbox{}, fmt.Errorf("docker: create %q: %w", s.ID, b.undo(ctx, c, err))
	}
	return sb, nil
}

// prepare does what needs no claim yet. Nothing of a sandbox is made.
func (b *Backend) prepare(ctx context.Context, c *creation) (err error) {
	if err := c.spec.Check(); err != nil {
		return err
	}
	if c.profile, err = c.spec.Effective(); err != nil {
		return err
	}
	if err := b.agree(ctx); err != nil {
		return err
	}
	if c.image, err = b.image(ctx, c.spec.Image); err != nil {
		return err
	}
	c.base, err = b.shared(ctx, c.image.ID)
	c.created = b.cfg.Clock.Now().UTC().Round(0)
	return err
}

func (b *Backend) create(ctx context.Context, c *creation) (backend.Sandbox, error) {
	if err := b.claim(ctx, c); err != nil {
		return backend.Sandbox{}, err
	}
	if err := b.furnish(ctx, c); err != nil {
		return backend.Sandbox{}, err
	}
	if _, err := b.api.ContainerStart(ctx, c.container, client.ContainerStartOptions{}); err != nil {
		return backend.Sandbox{}, fmt.Errorf("start: %w", err)
	}
	if c.resumes {
		if err := b.remember(ctx, c.spec, c.created, c.workspace, mark{c.spec.Pinned, c.created}); err != nil {
			return backend.Sandbox{}, err
		}
	}
	ep, err := b.await(ctx, c)
	if err != nil {
		return backend.Sandbox{}, err
	}
	made := c.spec
	made.Env = nil
	return backend.Sandbox{Spec: made, Created: c.created, Renewed: c.created, Running: true, Resumed: c.resumes, Endpoint: ep}, nil
}

// errTaken is why a claim failed; nothing of this call was made then.
type errTaken struct{ why string }

func (e errTaken) Error() string { return backend.ErrConflict.Error() + ": " + e.why }
func (e errTaken) Unwrap() error { return backend.ErrConflict }

// claim makes the container, whose name is granted once. A holder that has ended, is ours and of the same tenant gives way, once;
// its workspace is taken over.
func (b *Backend) claim(ctx context.Context, c *creation) error {
	c.workspace = b.name(c.spec.ID) + "." + c.spec.Instance + "." + c.call[:8]
	taken, err := b.tryClaim(ctx, c)
	if taken == nil || err != nil {
		return err
	}
	if err := b.giveWay(ctx, c, *taken); err != nil {
		return err
	}
	if taken, err = b.tryClaim(ctx, c); taken != nil {
		return errTaken{"somebody else was faster"}
	}
	return err
}

// tryClaim returns the holder of the name if there is one.
func (b *Backend) tryClaim(ctx context.Context, c *creation) (*container.InspectResponse, error) {
	made, err := b.api.ContainerCreate(ctx, b.container(c, c.workspace))
	if err == nil {
		c.container = made.ID
		return nil, nil
	}
	if !errdefs.IsConflict(err) {
		return nil, err
	}
	got, lerr := b.api.ContainerInspect(ctx, b.name(c.spec.ID), client.ContainerInspectOptions{})
	switch {
	case errdefs.IsNotFound(lerr):
		return &container.InspectResponse{}, nil // gone meanwhile
	case lerr != nil:
		return nil, errTaken{"its holder cannot be looked at: " + lerr.Error()}
	case got.Container.Config != nil && got.Container.Config.Labels[labelCall] == c.call: // the engine was asked twice
		c.container = got.Container.ID
		return nil, nil
	}
	return &got.Container, nil
}

// giveWay removes a holder that may be removed. It is removed by its id and without force, so that neither its successor nor one
// that has come to life meanwhile is hit.
func (b *Backend) giveWay(ctx context.Context, c *creation, holder container.InspectResponse) error {
	if holder.ID == "" {
		return nil
	}
	if why := b.blocks(c, holder); why != "" {
		return errTaken{why}
	}
	c.workspace, c.resumes = holder.Config.Labels[labelVolume], true
	_, err := b.api.ContainerRemove(ctx, holder.ID, client.ContainerRemoveOptions{RemoveVolumes: true})
	if err != nil && !errdefs.IsNotFound(err) {
		return errTaken{"its holder stays: " + err.Error()}
	}
	return nil
}

// blocks says why a holder keeps its name, or "".
func (b *Backend) blocks(c *creation, holder container.InspectResponse) string {
	if holder.Config == nil || holder.State == nil {
		return "its holder cannot be understood"
	}
	l := holder.Config.Labels
	switch {
	case l[labelOwner] != b.cfg.Owner || l[labelKind] != kindSandbox || l[labelID] != c.spec.ID || l[labelVolume] == "":
		return "the container's name is held by something that is not ours"
	case l[labelTenant] != c.spec.Tenant:
		return "it is another tenant's"
	}
	switch holder.State.Status {
	case container.StateExited, container.StateDead:
		return ""
	case container.StateCreated:
		made, err := time.Parse(time.RFC3339Nano, holder.Created)
		if err == nil && b.cfg.Clock.Since(made) > abandoned {
			return ""
		}
		return "it is being created"
	}
	return "it is " + string(holder.State.Status)
}

// furnish sees to it that the workspace is the right one, and the user's. Now that the name is ours nobody else takes over a
// workspace of this id, so what is there can be looked at.
func (b *Backend) furnish(ctx context.Context, c *creation) error {
	bx, err := b.one(ctx, c.spec.ID)
	if err != nil {
		return err
	}
	made := false
	for _, w := range bx.workspaces {
		made = made || w.name == c.workspace && w.sandbox.Instance == c.spec.Instance
	}
	if c.resumes = !made; !made {
		return nil
	}
	if old, ok := bx.without(c.workspace).kept(); ok {
		return b.moveIn(ctx, c, old)
	}
	if c.image.workspaceUID == fmt.Sprint(c.profile.UID) {
		return nil // the engine has copied the image's directory, owner and all
	}
	return b.giveHome(ctx, c)
}

// without returns bx less one workspace.
func (bx *box) without(name string) *box {
	rest := &box{id: bx.id}
	for _, w := range bx.workspaces {
		if w.name != name {
			rest.workspaces = append(rest.workspaces, w)
		}
	}
	for _, m := range bx.marks {
		if m.of != name {
			rest.marks = append(rest.marks, m)
		}
	}
	return rest
}

// moveIn makes the container anew on a workspace whose own container somebody has removed.
func (b *Backend) moveIn(ctx context.Context, c *creation, old volume) error {
	if err := b.discard(ctx, c); err != nil {
		return err
	}
	if old.sandbox.Tenant != c.spec.Tenant {
		return errTaken{"it is another tenant's"}
	}
	c.workspace, c.resumes = old.of, true
	taken, err := b.tryClaim(ctx, c)
	if taken != nil {
		return errTaken{"somebody else was faster"}
	}
	return err
}

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
