package runner

import (
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// What next found.
type found uint8

const (
	foundNothing found = iota // yet
	foundData
	foundGap
	foundExit
)

// item is what next returns: a part of a stream, a gap in it, or the exit.
type item struct {
	found    found
	stream   int
	from, to int64 // of a part, with its bytes at the beginning of buf, or of a gap
	exit     *wire.Exit
}

// next returns what comes next and moves on. A part never ends within a UTF-8 sequence, unless the stream ends there.
func (r *reader) next(buf []byte) item {
	r.out.mu.Lock()
	defer r.out.mu.Unlock()
	for n := range r.out.rings {
		stream := (r.first + n) % len(r.out.rings)
		if it := r.lookLocked(stream, buf); it.found != foundNothing {
			r.first = stream + 1
			return it
		}
	}
	if r.out.exit != nil {
		return item{found: foundExit, exit: r.out.exit}
	}
	return item{}
}

// stop makes what is there now the last that next finds, but for the exit.
func (r *reader) stop() {
	r.out.mu.Lock()
	defer r.out.mu.Unlock()
	for stream := range r.limit {
		if r.limit[stream] < 0 {
			r.limit[stream] = r.out.rings[stream].end
		}
	}
}

func (r *reader) lookLocked(stream int, buf []byte) item {
	ring, at := &r.out.rings[stream], r.off[stream]
	end, ended := ring.end, r.limit[stream] >= 0
	if ended {
		end = r.limit[stream]
	}
	if at >= end {
		return item{}
	}
	if at < ring.start {
		r.off[stream] = min(ring.start, end)
		return item{found: foundGap, stream: stream, from: at, to: r.off[stream]}
	}
	n := ring.read(buf[:min(int64(len(buf)), end-at)], at)
	if !ended || at+int64(n) < end {
		n -= incomplete(buf[:n])
	}
	if n == 0 {
		return item{}
	}
	r.advanceLocked(stream, n)
	return item{found: foundData, stream: stream, from: at, to: at + int64(n)}
}

func (r *reader) advanceLocked(stream, n int) {
	r.off[stream] += int64(n)
	if r.holds {
		r.out.room.Broadcast()
	}
}
