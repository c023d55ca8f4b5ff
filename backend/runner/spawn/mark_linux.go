package spawn

import "sync"

const (
	firstMark = 1802960896 // above what systems give to users and to ranges of subordinate ids
	markCount = 1 << 16
	nobodyUID = firstMark - 1 // a uid that no process has
)

// mark is a group that one process tree has and nothing else. An unprivileged process cannot leave it, not even in a user namespace of
// its own. The zero mark is none.
type mark struct {
	gid uint32
	lap uint32 // how often all groups had been used up when it was given out
}

// marks gives out groups. They come round again after markCount starts: then those that some process still has are left out.
type marks struct {
	inUse func() (map[uint32]bool, error) // the groups that processes have

	mu    sync.Mutex        // guards the fields below; held over inUse, once in markCount starts, so that no mark is released meanwhile
	next  uint32            // offset of the next group
	lap   uint32            // how often next has come round
	live  map[uint32]bool   // given out and not released
	older map[uint32]uint32 // groups that are passed over in this lap: the lap they are from
}

func newMarks() *marks {
	return &marks{inUse: groupsInUse, live: map[uint32]bool{}, older: map[uint32]uint32{}}
}

// take gives out a group; the zero mark when there are no marks, or none is free.
func (m *marks) take() mark {
	if m == nil {
		return mark{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for range markCount {
		if m.next == markCount && !m.turnLocked() {
			return mark{}
		}
		gid := firstMark + m.next
		m.next++
		if _, old := m.older[gid]; !old {
			m.live[gid] = true
			return mark{gid, m.lap}
		}
	}
	return mark{}
}

// turnLocked starts another lap, if it can be told which groups are taken.
func (m *marks) turnLocked() bool {
	taken, err := m.inUse()
	if err != nil {
		return false
	}
	for gid := range m.live {
		taken[gid] = true
	}
	older := map[uint32]uint32{}
	for gid := range taken {
		if lap, old := m.older[gid]; old {
			older[gid] = lap
		} else {
			older[gid] = m.lap
		}
	}
	m.older, m.next, m.lap = older, 0, m.lap+1
	return true
}

// release says that the process itself has ended. Its descendants may go on having the group.
func (m *marks) release(k mark) {
	if m == nil || k.gid == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.live, k.gid)
}

// valid reports whether the group still stands for the tree that it was given to.
func (m *marks) valid(k mark) bool {
	if m == nil || k.gid == 0 {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if k.lap == m.lap {
		return true
	}
	lap, old := m.older[k.gid]
	return old && lap == k.lap
}
