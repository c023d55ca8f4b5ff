package runner

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
)

// legacyProtocol is the version of runners that mint the ids of processes themselves.
const legacyProtocol = 1

// fractionBits is how many bits of an id are for the fraction of a millisecond.
const fractionBits = 12

// minter mints ids that never repeat, not even after a restart: UUIDs of version 7. Each sorts after those before it, also within
// one millisecond and while the clock is set back.
type minter struct {
	clock clock.Clock

	mu   sync.Mutex // guards last
	last uint64     // the stamp of the last id
}

// name gives a process an id of its own. The id that was assigned only tells whether the order is a repeated one.
func (m *minter) name(o *order) {
	o.id = m.mint()
	if o.key == "" {
		o.key = ":" + o.id // which no request can name
	}
}

func (m *minter) mint() string {
	stamp := m.stamp()
	var b [16]byte
	rand.Read(b[8:]) //nolint:errcheck // it never fails
	binary.BigEndian.PutUint64(b[:8], stamp>>fractionBits<<16|7<<fractionBits|stamp&(1<<fractionBits-1))
	b[8] = b[8]&0x3f | 0x80
	text := hex.EncodeToString(b[:])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}

// stamp returns the time in milliseconds with their fraction, or what follows the last stamp where the time does not.
func (m *minter) stamp() uint64 {
	now := m.clock.Now()
	fraction := uint64(now.Nanosecond()) % uint64(time.Millisecond) << fractionBits / uint64(time.Millisecond)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = max(uint64(now.UnixMilli())<<fractionBits|fraction, m.last+1)
	return m.last
}
