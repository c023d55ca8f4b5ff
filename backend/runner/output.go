package runner

import (
	"sync"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// holdBack is how many unread bytes of a stream an exec's reader may leave before the process has to wait for it.
const holdBack = 512 << 10

// output is what a process has written, and those who read it: any number of readers at offsets of their own. Readers that hold make
// the process wait; the others are told of a gap when they fall behind.
type output struct {
	ended chan struct{} // closed once exit is set

	mu      sync.Mutex // guards the fields below
	room    sync.Cond  // on mu: a reader that holds has read or left
	rings   [2]ring    // stdout, stderr
	readers []*reader
	free    bool       // nobody holds the process back any more
	final   [2]int64   // where the streams stood when exit was set
	exit    *wire.Exit // nil until the process has ended and its output was read
}

// reader is one client of an output. Its fields are guarded by the mu of the output, except wake.
type reader struct {
	out   *output
	wake  chan struct{} // has a value after something has changed
	off   [2]int64
	limit [2]int64 // where to end, once the process or the reading has ended; otherwise -1
	holds bool
	first int // the stream to look at first, so that neither starves
}

func newOutput() *output {
	o := &output{ended: make(chan struct{})}
	o.room.L = &o.mu
	return o
}

// attach adds a reader at the given offsets; false if one of them lies beyond what was written.
func (o *output) attach(off [2]int64, holds bool) (*reader, bool) {
	r := &reader{out: o, wake: make(chan struct{}, 1), off: off, limit: [2]int64{-1, -1}, holds: holds}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.rings {
		if off[i] > o.rings[i].end {
			return nil, false
		}
		if o.exit != nil {
			r.limit[i] = o.rings[i].end
		}
	}
	o.readers = append(o.readers, r)
	return r, true
}

// detach removes a reader, which may do so twice.
func (o *output) detach(r *reader) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, other := range o.readers {
		if other == r {
			o.readers = append(o.readers[:i], o.readers[i+1:]...)
			break
		}
	}
	for i := range o.rings {
		o.trimLocked(i)
	}
	o.room.Broadcast()
}

// append adds to a stream, and returns once no reader holds the process back.
func (o *output) append(stream int, b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rings[stream].append(b)
	o.trimLocked(stream)
	o.wakeLocked()
	for o.heldLocked(stream) {
		o.room.Wait()
	}
}

func (o *output) heldLocked(stream int) bool {
	if o.free || o.exit != nil {
		return false
	}
	for _, r := range o.readers {
		if r.holds && o.rings[stream].end-r.off[stream] > holdBack {
			return true
		}
	}
	return false
}

// trimLocked keeps what the slowest reader has not read, but no more than wire.FollowLag.
func (o *output) trimLocked(stream int) {
	ring := &o.rings[stream]
	floor := ring.end
	for _, r := range o.readers {
		floor = min(floor, r.off[stream])
	}
	ring.trim(max(floor, ring.end-wire.FollowLag))
}

func (o *output) wakeLocked() {
	for _, r := range o.readers {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// letGo lets the process run on whatever readers do.
func (o *output) letGo() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.free = true
	o.room.Broadcast()
}

// end sets the exit, after which every reader comes to its own end. What is appended later is for readers that come later.
func (o *output) end(exit wire.Exit) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.exit = &exit
	for i := range o.rings {
		o.rings[i].spare = nil
		for _, r := range o.readers {
			if r.limit[i] < 0 {
				r.limit[i] = o.rings[i].end
			}
		}
	}
	o.wakeLocked()
	o.room.Broadcast()
	close(o.ended)
}

func (o *output) size() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	var n int64
	for i := range o.rings {
		n += o.rings[i].end - o.rings[i].start
	}
	return n
}

// forget gives up the bytes; readers are told of the gap.
func (o *output) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.rings {
		o.rings[i].forget()
	}
}
