package local

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/runner/spawn"
)

// downWorkers is how many sandboxes a down stops at once.
const downWorkers = 16

// create makes a sandbox or resumes a stopped one. What fails leaves what was there before.
func (h *host) create(ctx context.Context, req createRequest) (sandbox, error) {
	spec := req.spec()
	if err := spec.Check(); err != nil {
		return sandbox{}, err
	}
	if err := ctx.Err(); err != nil { // nobody waits for it any more: an undo may have been here already
		return sandbox{}, err
	}
	b, err := h.claim(req.meta)
	if err != nil {
		return sandbox{}, err
	}
	defer func() { <-b.turn }()
	m := req.meta
	m.Created = h.clock.Now()
	m.Renewed = m.Created
	if b.state == stopped {
		return h.resume(b, m, spec.Env)
	}
	return h.fresh(b, m, spec.Env)
}

func (h *host) fresh(b *box, m meta, env map[string]string) (_ sandbox, err error) {
	defer func() {
		if err != nil && b.state == making {
			h.set(b, m, gone, nil)
		}
	}()
	if m.UID, err = h.uids.take(); err != nil {
		return sandbox{}, fmt.Errorf("create sandbox %s: %w", m.ID, err)
	}
	if err := h.store.make(m); err != nil {
		return sandbox{}, h.abandon(b, m, err)
	}
	cell, err := h.enter(m, env)
	if err != nil {
		return sandbox{}, h.abandon(b, m, err)
	}
	h.set(b, m, running, cell)
	return sandbox{meta: m, Running: true}, nil
}

// abandon removes what a failed create made, and nothing else. What cannot be removed stays listed as half destroyed, and keeps
// its uid.
func (h *host) abandon(b *box, m meta, cause error) error {
	cause = fmt.Errorf("create sandbox %s: %w", m.ID, cause)
	if errors.Is(cause, errForeign) {
		h.release(m.UID)
		return fmt.Errorf("%w: %w", backend.ErrConflict, cause)
	}
	if err := h.store.remove(m.ID); err != nil {
		h.set(b, m, doomed, nil)
		return errors.Join(cause, err)
	}
	h.release(m.UID)
	return room(cause)
}

// release gives back a uid whose processes and files are gone, with what else bears it: System V shared memory and its kind outlive
// processes where sandboxes share them. While some of that stays nobody else gets the uid.
func (h *host) release(uid uint32) {
	if h.uids == nil {
		return
	}
	if err := spawn.RemoveIPC(uid); err != nil {
		h.log.Error("uid is not used again", zap.Uint32("uid", uid), zap.Error(err))
		return
	}
	h.uids.release(uid)
}

// room makes an error ErrQuota where the machine has no room left; nothing of the create may be left by then.
func room(err error) error {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, full) {
			return fmt.Errorf("%w: %w", backend.ErrQuota, err)
		}
	}
	return err
}

// resume starts a stopped sandbox as a new instance; the label is written last, when all else went well.
func (h *host) resume(b *box, m meta, env map[string]string) (sandbox, error) {
	old := b.meta
	m.UID = old.UID
	if err := h.rehome(&m); err != nil {
		return sandbox{}, room(fmt.Errorf("resume sandbox %s: %w", m.ID, err))
	}
	cell, err := h.enter(m, env)
	if err != nil {
		return sandbox{}, room(fmt.Errorf("resume sandbox %s: %w", m.ID, err))
	}
	if err := h.store.write(m); err != nil {
		err = fmt.Errorf("resume sandbox %s: %w", m.ID, err)
		return sandbox{}, errors.Join(err, h.leave(context.Background(), m.ID, cell), h.store.write(old))
	}
	h.set(b, m, running, cell)
	return sandbox{meta: m, Running: true, Resumed: true}, nil
}

// rehome gives a stopped sandbox a uid of this host, where the one it has is not: its uids were another host's by then, or it
// had none.
func (h *host) rehome(m *meta) error {
	if h.uids == nil || h.uids.has(m.UID) {
		return nil
	}
	uid, err := h.uids.take()
	if err != nil {
		return err
	}
	if err := chownTree(h.store.path(m.ID, homeDir), uid); err != nil {
		return err
	}
	m.UID = uid
	return h.store.own(*m)
}

func (h *host) stop(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
	b, err := h.take(ctx, r)
	if b == nil {
		return outcome(backend.Gone, err)
	}
	defer func() { <-b.turn }()
	return h.halt(ctx, b)
}

// halt stops b, whose turn the caller has.
func (h *host) halt(ctx context.Context, b *box) (backend.Outcome, error) {
	if b.state != running {
		return backend.Gone, nil
	}
	if err := h.leave(context.WithoutCancel(ctx), b.meta.ID, b.cell); err != nil {
		return backend.Unknown, err
	}
	h.set(b, b.meta, stopped, nil)
	return backend.Stopped, nil
}

func (h *host) destroy(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
	b, err := h.take(ctx, r)
	if b == nil {
		return outcome(backend.Gone, err)
	}
	defer func() { <-b.turn }()
	if _, err := h.halt(ctx, b); err != nil {
		return backend.Unknown, err
	}
	if b.state == stopped {
		if err := h.store.doom(r.ID); err != nil {
			return backend.Unknown, fmt.Errorf("destroy sandbox %s: %w", r.ID, err)
		}
		h.set(b, b.meta, doomed, nil)
	}
	if err := h.store.remove(r.ID); err != nil {
		return backend.Unknown, fmt.Errorf("destroy sandbox %s: its directory stays: %w", r.ID, err)
	}
	h.release(b.meta.UID)
	h.set(b, b.meta, gone, nil)
	return backend.Stopped, nil
}

func (h *host) pin(ctx context.Context, r backend.Ref, pinned bool) (backend.Outcome, error) {
	b, err := h.take(ctx, r)
	if b == nil {
		return outcome(backend.Gone, err)
	}
	defer func() { <-b.turn }()
	if b.state != running {
		return backend.Gone, nil
	}
	m := b.meta
	m.Pinned, m.Renewed = pinned, h.clock.Now()
	if err := h.store.write(m); err != nil {
		return backend.Unknown, fmt.Errorf("mark sandbox %s: %w", r.ID, err)
	}
	h.set(b, m, running, b.cell)
	return backend.Marked, nil
}

// down refuses creates and stops all that runs. When all is stopped the host ends; otherwise it goes on as before.
func (h *host) down(ctx context.Context) (n int, err error) {
	n, err = h.stopAll(ctx, h.shut())
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.closing = false
		return n, err
	}
	if !h.over {
		h.over = true
		close(h.ended)
	}
	return n, nil
}

// shut ends creates and returns what there is, creates under way included.
func (h *host) shut() <-chan *box {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closing = true
	boxes := make(chan *box, len(h.boxes))
	for _, b := range h.boxes {
		boxes <- b
	}
	close(boxes)
	return boxes
}

func (h *host) stopAll(ctx context.Context, boxes <-chan *box) (n int, err error) {
	var mu sync.Mutex // guards n and err
	var wg sync.WaitGroup
	for range downWorkers {
		wg.Go(func() {
			for b := range boxes {
				b.turn <- struct{}{} // every turn ends: what is done in it has a budget
				out, serr := h.halt(ctx, b)
				<-b.turn
				mu.Lock()
				if out == backend.Stopped {
					n++
				}
				err = errors.Join(err, serr)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return n, err
}

func outcome(o backend.Outcome, err error) (backend.Outcome, error) {
	if err != nil {
		return backend.Unknown, err
	}
	return o, nil
}
