package docker

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend"
)

// creation is one call of Create on its way.
type creation struct {
	spec    backend.Spec
	profile backend.Profile
	created time.Time
	call    string // of this call alone
	image   image
	base    base

	container string   // its id, once the name is this call's
	workspace string   // name of the volume
	resumes   bool     // the workspace was there before
	marks     []volume // that the id had before
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
	if err := checkLimits(c.profile); err != nil {
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
	renewed := c.created
	if c.resumes {
		var err error
		if renewed, err = b.takeOver(ctx, c); err != nil {
			return backend.Sandbox{}, err
		}
	}
	ep, err := b.await(ctx, c)
	if err != nil {
		return backend.Sandbox{}, err
	}
	made := c.spec
	made.Env = nil
	return backend.Sandbox{Spec: made, Created: c.created, Renewed: renewed, Running: true, Resumed: c.resumes, Endpoint: ep}, nil
}

// takeOver marks a workspace as this instance's, and returns when its lifetime began. The marks of those before are of no use any
// more, but do no harm.
func (b *Backend) takeOver(ctx context.Context, c *creation) (renewed time.Time, err error) {
	renewed = c.created
	for _, m := range c.marks {
		if m.of == c.workspace && !renewed.After(m.mark.renewed) { // another replica's clock is ahead
			renewed = m.mark.renewed.Add(1)
		}
	}
	if err := b.remember(ctx, c.spec, c.created, c.workspace, mark{c.spec.Pinned, renewed}); err != nil {
		return renewed, err
	}
	for _, m := range c.marks {
		if m.of != c.workspace {
			continue
		}
		if err := b.removeVolume(ctx, m.name); err != nil {
			b.cfg.Logger.Warn("the mark of an earlier instance stays", zap.String("volume", m.name), zap.Error(err))
		}
	}
	return renewed, nil
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
	made, copied := false, !c.resumes
	for _, w := range bx.workspaces {
		made = made || w.name == c.workspace && w.sandbox.Instance == c.spec.Instance
	}
	c.marks = bx.marks
	if c.resumes = !made; !made {
		return nil
	}
	rest := bx.without(c.workspace)
	if old, ok := rest.kept(); ok && (len(rest.workspaces) > 0 || old.sandbox.Tenant != c.spec.Tenant) {
		return b.moveIn(ctx, c, old)
	}
	for _, m := range rest.marks { // on a workspace that somebody has removed
		if err := b.removeVolume(ctx, m.name); err != nil {
			return err
		}
	}
	if copied && c.image.workspaceUID == fmt.Sprint(c.profile.UID) {
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
	if err != nil {
		return err
	}
	return b.furnish(ctx, c) // if it was destroyed meanwhile the engine has made an empty one
}
