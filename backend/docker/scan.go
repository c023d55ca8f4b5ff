package docker

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend"
)

// box is everything that the engine has of one sandbox id.
type box struct {
	id         string
	container  *container.Summary // nil: none
	helpers    map[string]string  // instances, by the id of the container
	workspaces []volume
	marks      []volume
}

// volume is one of this owner's volumes: a workspace, or a mark on one.
type volume struct {
	name    string
	of      string // the workspace that a mark is on; of a workspace its own name
	sandbox backend.Sandbox
	mark    mark
}

// scan asks the engine for one id, or for all with "". Volumes come first: a sandbox that is made between the two questions is a
// container whose volume is not known yet, instead of a volume that looks as if its sandbox had stopped.
func (b *Backend) scan(ctx context.Context, id string) (map[string]*box, error) {
	if err := b.agree(ctx); err != nil {
		return nil, err
	}
	boxes := map[string]*box{}
	volumes, err := b.api.VolumeList(ctx, client.VolumeListOptions{Filters: b.filter(id)})
	if err != nil {
		return nil, unasked("list volumes", err)
	}
	for _, v := range volumes.Items {
		b.addVolume(boxes, v.Name, v.Labels)
	}
	containers, err := b.api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: b.filter(id)})
	if err != nil {
		return nil, unasked("list containers", err)
	}
	for i := range containers.Items {
		b.addContainer(boxes, &containers.Items[i])
	}
	return boxes, nil
}

func (b *Backend) filter(id string) client.Filters {
	f := client.Filters{}.Add("label", labelOwner+"="+b.cfg.Owner)
	if id != "" {
		f.Add("label", labelID+"="+id)
	}
	return f
}

// one returns what there is of one id, which may be nothing.
func (b *Backend) one(ctx context.Context, id string) (*box, error) {
	boxes, err := b.scan(ctx, id)
	if err != nil {
		return nil, err
	}
	if bx := boxes[id]; bx != nil {
		return bx, nil
	}
	return &box{id: id}, nil
}

func boxOf(boxes map[string]*box, id string) *box {
	bx := boxes[id]
	if bx == nil {
		bx = &box{id: id, helpers: map[string]string{}}
		boxes[id] = bx
	}
	return bx
}

func (b *Backend) addVolume(boxes map[string]*box, name string, labels map[string]string) {
	kind := labels[labelKind]
	if kind != kindWorkspace && kind != kindMark {
		return
	}
	sb, err := sandboxOf(labels)
	v := volume{name: name, of: name, sandbox: sb}
	if err == nil && kind == kindMark {
		v.of = labels[labelVolume]
		v.mark, err = markOf(labels)
	}
	if err != nil {
		b.cfg.Logger.Warn("volume with labels that are not ours", zap.String("volume", name), zap.Error(err))
		return
	}
	bx := boxOf(boxes, sb.ID)
	if kind == kindMark {
		bx.marks = append(bx.marks, v)
	} else {
		bx.workspaces = append(bx.workspaces, v)
	}
}

func (b *Backend) addContainer(boxes map[string]*box, c *container.Summary) {
	id := c.Labels[labelID]
	switch {
	case c.Labels[labelKind] == kindHelper:
		bx := boxOf(boxes, id)
		bx.helpers[c.ID] = c.Labels[labelInstance]
	case c.Labels[labelKind] == kindSandbox && slices.Contains(c.Names, "/"+b.name(id)):
		boxOf(boxes, id).container = c
	}
}

// newest returns the last mark that fits.
func (bx *box) newest(fits func(volume) bool) (last volume, ok bool) {
	for _, m := range bx.marks {
		if fits(m) && (!ok || m.mark.renewed.After(last.mark.renewed)) {
			last, ok = m, true
		}
	}
	return last, ok
}

// kept returns the workspace that is without a container, as the sandbox that ran in it last. Of several it is the oldest: a create
// that finds one moves into it, so the younger ones are of creates that failed and could not clean up, and nothing ever ran in them.
// Without any, a mark that has outlived its workspace counts for it.
func (bx *box) kept() (first volume, ok bool) {
	var made time.Time
	of := bx.workspaces
	if len(of) == 0 {
		of = bx.marks
	}
	for _, w := range of {
		if at := w.sandbox.Created; !ok || at.Before(made) {
			made, first, ok = at, w, true
		}
	}
	if m, marked := bx.newest(func(m volume) bool { return m.of == first.of }); marked {
		first.sandbox = remembered(m)
	}
	return first, ok
}

// workspaceOf returns the workspace of an instance that has no container: the one that is kept, or what a create of it that failed
// has left beside that; "" if there is neither.
func (bx *box) workspaceOf(instance string) string {
	first, ok := bx.kept()
	if ok && first.sandbox.Instance == instance {
		return first.of
	}
	for _, w := range bx.workspaces { // the label of the one that is kept says who made it, not who ran in it last
		if w.name != first.of && w.sandbox.Instance == instance {
			return w.name
		}
	}
	return ""
}

// beside returns the workspaces that go with this one: if it is the one that is kept, all others, in which nothing ever ran.
func (bx *box) beside(workspace string) (names []string) {
	if first, ok := bx.kept(); !ok || first.of != workspace {
		return nil
	}
	for _, w := range bx.workspaces {
		if w.name != workspace {
			names = append(names, w.name)
		}
	}
	return names
}

// remembered returns the sandbox of a mark, with what the mark says of it.
func remembered(m volume) backend.Sandbox {
	sb := m.sandbox
	sb.Pinned, sb.Renewed = m.mark.pinned, m.mark.renewed
	return sb
}

// sandbox returns what a list says of bx; false if there is nothing that could be a sandbox.
func (b *Backend) sandbox(bx *box) (backend.Sandbox, bool) {
	if bx.container == nil {
		v, ok := bx.kept()
		return v.sandbox, ok
	}
	sb, err := sandboxOf(bx.container.Labels)
	if err != nil {
		b.cfg.Logger.Warn("container with labels that are not ours", zap.String("container", bx.container.ID), zap.Error(err))
		return sb, false
	}
	if m, ok := bx.newest(func(m volume) bool { return m.sandbox.Instance == sb.Instance }); ok {
		sb.Pinned, sb.Renewed = m.mark.pinned, m.mark.renewed
	}
	if alive(bx.container.State) {
		sb.Endpoint, sb.Running = b.endpoint(sb.Ref, bx.container)
	}
	return sb, true
}

// alive says whether a container has processes. One that is paused has them, with all that they hold, and goes on when it is let.
func alive(s container.ContainerState) bool {
	return s == container.StateRunning || s == container.StatePaused
}

// endpoint returns where the runner of a running container listens; false while the engine has given it no address.
func (b *Backend) endpoint(r backend.Ref, c *container.Summary) (backend.Endpoint, bool) {
	ep := backend.Endpoint{Network: "tcp", Token: b.token(r)}
	if b.cfg.Publish {
		for _, p := range c.Ports {
			if p.PrivatePort == runnerPort && p.PublicPort != 0 {
				ep.Address = net.JoinHostPort(loopback.String(), strconv.Itoa(int(p.PublicPort)))
				return ep, true
			}
		}
		return backend.Endpoint{}, false
	}
	if c.NetworkSettings == nil {
		return backend.Endpoint{}, false
	}
	for _, n := range c.NetworkSettings.Networks {
		if n != nil && n.IPAddress.IsValid() {
			ep.Address = netip.AddrPortFrom(n.IPAddress, runnerPort).String()
			return ep, true
		}
	}
	return backend.Endpoint{}, false
}

// List implements [backend.Backend]. It asks the engine twice, whatever the number of sandboxes.
func (b *Backend) List(ctx context.Context, ids ...string) (backend.Snapshot, error) {
	id := ""
	if len(ids) == 1 {
		id = ids[0]
	}
	boxes, err := b.scan(ctx, id)
	if err != nil {
		return backend.Snapshot{}, err
	}
	snap := backend.Snapshot{Sandboxes: make([]backend.Sandbox, 0, len(boxes)), Complete: id == ""}
	for _, bx := range boxes {
		if sb, ok := b.sandbox(bx); ok {
			snap.Sandboxes = append(snap.Sandboxes, sb)
		}
	}
	return snap, nil
}

// abandoned is when a container that was never started is no longer taken for a create under way: no create may take that long.
const abandoned = 5 * time.Minute
