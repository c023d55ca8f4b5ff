package local

// Disconnect ends the connections that wait for a next call.
func (b *Backend) Disconnect() { b.client.CloseIdleConnections() }

// MaxLog is the size of a log above which it is trimmed.
const MaxLog = maxLog

var (
	TrimLog = trimLog
	Calm    = calm
)

// UIDPool is a uidPool without a lock.
type UIDPool struct{ p *uidPool }

// NewUIDPool returns a pool of a block that nobody else uses.
func NewUIDPool(first, size uint32) UIDPool { return UIDPool{newUIDPool(first, size, nil)} }

// Take is take.
func (p UIDPool) Take() (uint32, error) { return p.p.take() }

// Keep is keep.
func (p UIDPool) Keep(uid uint32) { p.p.keep(uid) }

// Release is release.
func (p UIDPool) Release(uid uint32) { p.p.release(uid) }
