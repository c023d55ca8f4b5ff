package memory

import (
	"fmt"
	"io/fs"
	"slices"

	"github.com/keepwell-go/keepwell/backend"
)

// WriteFile puts a file into the workspace of a sandbox, running or stopped. The error is fs.ErrNotExist without a sandbox.
func (b *Backend) WriteFile(id, name string, data []byte) error {
	b.engine.mu.Lock()
	defer b.engine.mu.Unlock()
	box := b.engine.boxes[key{b.owner, id}]
	if box == nil {
		return fmt.Errorf("memory: sandbox %q: %w", id, fs.ErrNotExist)
	}
	box.files[name] = slices.Clone(data)
	return nil
}

// ReadFile returns a copy of a file in the workspace of a sandbox. The error is fs.ErrNotExist without sandbox or file.
func (b *Backend) ReadFile(id, name string) ([]byte, error) {
	b.engine.mu.Lock()
	defer b.engine.mu.Unlock()
	box := b.engine.boxes[key{b.owner, id}]
	if box == nil {
		return nil, fmt.Errorf("memory: sandbox %q: %w", id, fs.ErrNotExist)
	}
	data, ok := box.files[name]
	if !ok {
		return nil, fmt.Errorf("memory: file %q of sandbox %q: %w", name, id, fs.ErrNotExist)
	}
	return slices.Clone(data), nil
}

// Kill ends a running sandbox behind the backend's back, as a crash does: it is stopped, its workspace stays. It reports
// whether one ran.
func (b *Backend) Kill(id string) bool {
	return b.behind(id, func(k key, box *box) { b.engine.boxes[k] = box.stopped() })
}

// Remove takes a running sandbox and its workspace away behind the backend's back. It reports whether one ran.
func (b *Backend) Remove(id string) bool {
	return b.behind(id, func(k key, _ *box) { delete(b.engine.boxes, k) })
}

// behind changes a running sandbox that no call is changing.
func (b *Backend) behind(id string, change func(key, *box)) bool {
	ref, ran := b.changeRunning(key{b.owner, id}, change)
	if ran {
		b.engine.cfg.Ended(ref)
	}
	return ran
}

func (b *Backend) changeRunning(k key, change func(key, *box)) (backend.Ref, bool) {
	b.engine.mu.Lock()
	defer b.engine.mu.Unlock()
	box := b.engine.boxes[k]
	if box == nil || box.busy != nil || !box.sandbox.Running {
		return backend.Ref{}, false
	}
	change(k, box)
	b.engine.tellLocked()
	return box.sandbox.Ref, true
}
