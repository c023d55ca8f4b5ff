package registry

// fence orders local changes and lists by one counter, so that a list cannot undo what is younger than it. All of it is
// guarded by Registry.mu.
//
// A removal, or a hold that came to nothing, leaves a tombstone for the readers that may still get or apply a list from before it,
// and that goes when the last of them has ended. Readers begin in the order of their floors, so both queues are in order and each step is O(1).
type fence[K comparable] struct {
	seq     uint64
	readers []*reader
	tombs   map[K]tomb[K] // the latest of each key
	order   []tomb[K]     // the same in order of seq, with those that a later one replaced
}

// reader is a call that asks for a list and applies it, and the adoptions that it started.
type reader struct {
	floor uint64 // the list that it gets is younger
	users int
}

type tomb[K comparable] struct {
	key  K
	seq  uint64
	open bool // of a hold that left no word on whether there is an object: only a younger list can tell
}

func (f *fence[K]) tick() uint64 {
	f.seq++
	return f.seq
}

func (f *fence[K]) begin() *reader {
	rd := &reader{floor: f.seq, users: 1}
	f.readers = append(f.readers, rd)
	return rd
}

func (f *fence[K]) end(rd *reader) {
	rd.users--
	for len(f.readers) > 0 && f.readers[0].users == 0 {
		f.readers = f.readers[1:]
	}
	for len(f.order) > 0 && (len(f.readers) == 0 || f.order[0].seq <= f.readers[0].floor) {
		if t := f.order[0]; f.tombs[t.key].seq == t.seq {
			delete(f.tombs, t.key)
		}
		f.order = f.order[1:]
	}
}

// bury remembers that older lists are wrong about k, if anybody could believe one.
func (f *fence[K]) bury(k K, open bool) {
	seq := f.tick()
	if len(f.readers) > 0 {
		f.tombs[k] = tomb[K]{k, seq, open}
		f.order = append(f.order, f.tombs[k])
	}
}
