package local

import (
	"fmt"
	"os"
	"sync"

	"github.com/keepwell-go/keepwell/backend"
)

// uidPool hands out the uids of one block, which no other host runner of the machine has. A uid that was released is used again
// only after all others. A nil pool is that of a host that cannot change uids: it hands out 0, the host's own.
type uidPool struct {
	first, size uint32
	lock        *os.File // held while the block is ours

	mu   sync.Mutex // guards the fields below
	used map[uint32]bool
	next uint32 // offset of the uid to try first
}

func newUIDPool(first, size uint32, lock *os.File) *uidPool {
	return &uidPool{first: first, size: size, lock: lock, used: make(map[uint32]bool)}
}

// take returns a uid that nobody has.
func (p *uidPool) take() (uint32, error) {
	if p == nil {
		return 0, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for range p.size {
		uid := p.first + p.next
		p.next = (p.next + 1) % p.size
		if !p.used[uid] {
			p.used[uid] = true
			return uid, nil
		}
	}
	return 0, fmt.Errorf("%w: all %d uids from %d on are in use", backend.ErrQuota, p.size, p.first)
}

// keep marks a uid as in use, and the ones up to it as used lately; one that is not of the block is no matter.
func (p *uidPool) keep(uid uint32) {
	if !p.has(uid) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used[uid] = true
	if after := (uid - p.first + 1) % p.size; after > p.next {
		p.next = after
	}
}

// release gives a uid back. Only for one whose processes and files are gone.
func (p *uidPool) release(uid uint32) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.used, uid)
}

// has says whether the uid is of this block.
func (p *uidPool) has(uid uint32) bool {
	return p != nil && uid >= p.first && uid-p.first < p.size
}

// owned returns the uids of the records that are of this block.
func (p *uidPool) owned(records map[string]record) map[uint32]bool {
	out := make(map[uint32]bool)
	for _, rec := range records {
		if p.has(rec.meta.UID) {
			out[rec.meta.UID] = true
		}
	}
	return out
}

func (p *uidPool) close() {
	if p != nil {
		_ = p.lock.Close()
	}
}
