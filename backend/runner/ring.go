package runner

import "github.com/keepwell-go/keepwell/backend/runner/wire"

const (
	firstChunk = 1 << 10  // bytes of the first chunk of a ring; each next one is twice as large
	chunkSize  = 64 << 10 // up to this
)

// ring holds the newest bytes of one stream of a process. It takes memory as it fills, and what has fallen out of it is used again.
// Offsets count from the first byte the process ever wrote.
type ring struct {
	chunks     [][]byte // the oldest first; all but the last one full
	start, end int64    // what is held
	spare      []byte   // an empty chunk
}

// append adds b to the end.
func (r *ring) append(b []byte) {
	r.end += int64(len(b))
	for len(b) > 0 {
		if r.room() == 0 {
			r.grow()
		}
		last := &r.chunks[len(r.chunks)-1]
		n := min(len(b), cap(*last)-len(*last))
		*last = append(*last, b[:n]...)
		b = b[n:]
	}
}

// room returns how much fits into the last chunk.
func (r *ring) room() int {
	if len(r.chunks) == 0 {
		return 0
	}
	last := r.chunks[len(r.chunks)-1]
	return cap(last) - len(last)
}

func (r *ring) grow() {
	next := r.spare
	r.spare = nil
	if next == nil {
		size := firstChunk
		if n := len(r.chunks); n > 0 {
			size = min(2*cap(r.chunks[n-1]), chunkSize)
		}
		next = make([]byte, 0, size)
	}
	r.chunks = append(r.chunks, next)
}

// trim gives up the chunks that lie before floor, except what is among the newest wire.RingSize bytes.
func (r *ring) trim(floor int64) {
	floor = min(floor, r.end-wire.RingSize)
	for len(r.chunks) > 0 && r.start+int64(len(r.chunks[0])) <= floor {
		first := r.chunks[0]
		r.start += int64(len(first))
		r.chunks[0] = nil
		r.chunks = r.chunks[1:]
		if cap(first) == chunkSize {
			r.spare = first[:0]
		}
	}
}

// forget gives up everything.
func (r *ring) forget() { *r = ring{start: r.end, end: r.end} }

// read copies what is held from offset at on into buf and returns how much. at must lie between start and end.
func (r *ring) read(buf []byte, at int64) int {
	skip := at - r.start
	n := 0
	for _, chunk := range r.chunks {
		if skip >= int64(len(chunk)) {
			skip -= int64(len(chunk))
			continue
		}
		n += copy(buf[n:], chunk[skip:])
		skip = 0
		if n == len(buf) {
			break
		}
	}
	return n
}
