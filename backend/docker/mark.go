package docker

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/moby/moby/client"

	"github.com/keepwell-go/keepwell/backend"
)

// Mark implements [backend.Marker]. The labels of a container cannot change, so a mark is a volume of its own without content,
// whose labels win over the container's. Unlike a file in the workspace it cannot be forged from inside, and a list has it for free.
func (b *Backend) Mark(ctx context.Context, r backend.Ref, pinned bool) (backend.Outcome, error) {
	out, err := b.mark(ctx, r, pinned)
	if err != nil {
		return backend.Unknown, fmt.Errorf("docker: mark %q: %w", r.ID, err)
	}
	return out, nil
}

func (b *Backend) mark(ctx context.Context, r backend.Ref, pinned bool) (backend.Outcome, error) {
	if err := r.Check(); err != nil {
		return backend.Unknown, err
	}
	bx, err := b.one(ctx, r.ID)
	if err != nil || !runs(bx, r) {
		return gone(err)
	}
	sb, ok := b.sandbox(bx)
	if !ok {
		return backend.Gone, nil
	}
	at := b.cfg.Clock.Now().UTC().Round(0)
	if !at.After(sb.Renewed) { // another replica's clock is ahead
		at = sb.Renewed.Add(1)
	}
	workspace := bx.container.Labels[labelVolume]
	if err := b.remember(ctx, sb.Spec, sb.Created, workspace, mark{pinned, at}); err != nil {
		return backend.Unknown, unclear(err)
	}
	if bx, err = b.one(ctx, r.ID); err != nil {
		return backend.Unknown, unclear(err)
	}
	return b.settle(ctx, bx, r, markName(workspace, at))
}

func gone(err error) (backend.Outcome, error) {
	if err != nil {
		return backend.Unknown, err
	}
	return backend.Gone, nil
}

func runs(bx *box, r backend.Ref) bool {
	return bx.container != nil && alive(bx.container.State) && bx.container.Labels[labelInstance] == r.Instance
}

// settle removes the marks that the latest one replaces, or this one if its instance has ended meanwhile.
func (b *Backend) settle(ctx context.Context, bx *box, r backend.Ref, ours string) (backend.Outcome, error) {
	if !runs(bx, r) {
		if bx.container != nil && bx.container.Labels[labelInstance] == r.Instance {
			return backend.Gone, nil // stopped, with all it had
		}
		return gone(b.removeVolume(ctx, ours))
	}
	workspace := bx.container.Labels[labelVolume]
	last, _ := bx.newest(func(m volume) bool { return m.of == workspace })
	for _, m := range bx.marks {
		if m.of == workspace && m.name != last.name {
			if err := b.removeVolume(ctx, m.name); err != nil {
				return backend.Unknown, unclear(fmt.Errorf("an older mark stays: %w", err))
			}
		}
	}
	return backend.Marked, nil
}

func markName(workspace string, at time.Time) string {
	return workspace + ".m" + strconv.FormatInt(at.UnixNano(), 36)
}

// remember makes a mark.
func (b *Backend) remember(ctx context.Context, s backend.Spec, created time.Time, workspace string, m mark) error {
	labels := b.labels(kindMark, s, created)
	labels[labelVolume] = workspace
	labels[labelPinned], labels[labelRenewed] = strconv.FormatBool(m.pinned), m.renewed.Format(time.RFC3339Nano)
	if _, err := b.api.VolumeCreate(ctx, client.VolumeCreateOptions{Name: markName(workspace, m.renewed), Labels: labels}); err != nil {
		return fmt.Errorf("keep the mark: %w", err)
	}
	return nil
}
