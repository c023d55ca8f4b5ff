package local

import (
	"bufio"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strconv"
)

// runDir is where the host runners of root agree on uids, and where they mount. It lies outside every state directory, and its
// own directories are passable for all.
const runDir = "/run/keepwell"

// uidRange is a range of uids cut into blocks, one for each host runner.
type uidRange struct{ first, block, blocks uint32 }

// ranges are tried in order: one that no system hands out to anybody, and one for user namespaces that map few ids.
func ranges() []uidRange {
	return []uidRange{{1_879_048_192, 65_536, 4_096}, {20_000, 1_000, 40}}
}

// claimUIDs takes a block of uids for the state directory that mark stands for: the one that its sandboxes have, if no other
// host runner holds it by now, else a free one in which no process lives. Uids that live on there without belonging to these
// sandboxes are left alone.
func claimUIDs(mark string, records map[string]record) (*uidPool, error) {
	r, err := mappedRange()
	if err != nil {
		return nil, err
	}
	living, err := livingUIDs()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(runDir, "uids"), 0o711); err != nil {
		return nil, fmt.Errorf("local: uids: %w", err)
	}
	p, err := r.claim(r.order(mark, records), living)
	if err != nil {
		return nil, err
	}
	for uid := range living {
		p.keep(uid)
	}
	for _, rec := range records {
		p.keep(rec.meta.UID)
	}
	return p, nil
}

// mappedRange returns the first range whose uids exist in this user namespace.
func mappedRange() (uidRange, error) {
	f, err := os.Open("/proc/self/uid_map")
	if err != nil {
		return uidRange{}, fmt.Errorf("local: uids: %w", err)
	}
	defer f.Close()
	type extent struct{ first, outside, size uint64 }
	var mapped []extent
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var e extent
		if _, err := fmt.Sscan(lines.Text(), &e.first, &e.outside, &e.size); err == nil {
			mapped = append(mapped, e)
		}
	}
	for _, r := range ranges() {
		for _, e := range mapped {
			if uint64(r.first) >= e.first && r.end() <= e.first+e.size {
				return r, nil
			}
		}
	}
	return uidRange{}, fmt.Errorf("local: uids: neither %d to %d nor a smaller range exists in this user namespace", ranges()[0].first, ranges()[0].end())
}

func (r uidRange) end() uint64 { return uint64(r.first) + uint64(r.block)*uint64(r.blocks) }

// candidate is a block; ours says that sandboxes have uids in it.
type candidate struct {
	block uint32
	ours  bool
}

// order returns the blocks in the order in which to try them.
func (r uidRange) order(mark string, records map[string]record) []candidate {
	var out []candidate
	for _, rec := range records {
		if uid := rec.meta.UID; uid >= r.first && uint64(uid) < r.end() {
			out = append(out, candidate{(uid - r.first) / r.block, true})
			break
		}
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(mark))
	start := sum.Sum32()
	for i := range r.blocks {
		out = append(out, candidate{(start%r.blocks + i) % r.blocks, false})
	}
	return out
}

func (r uidRange) claim(order []candidate, living map[uint32]bool) (*uidPool, error) {
	for _, c := range order {
		first := r.first + c.block*r.block
		lock, err := lockNow(filepath.Join(runDir, "uids", strconv.Itoa(int(first))))
		if errors.Is(err, errLocked) {
			continue
		}
		if err != nil {
			return nil, err
		}
		p := newUIDPool(first, r.block, lock)
		if c.ours || !p.anyOf(living) {
			return p, nil
		}
		p.close()
	}
	return nil, fmt.Errorf("local: uids: all %d blocks are taken by other host runners", r.blocks)
}

func (p *uidPool) anyOf(uids map[uint32]bool) bool {
	for uid := range uids {
		if p.has(uid) {
			return true
		}
	}
	return false
}
