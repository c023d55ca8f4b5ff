package spawn

import (
	"os"
	"time"
)

// Marks is the allotment of groups.
type Marks struct{ m *marks }

// NewMarks returns one that asks inUse which groups processes have.
func NewMarks(inUse func() (map[uint32]bool, error)) Marks {
	m := newMarks()
	m.inUse = inUse
	return Marks{m}
}

// Mark is one of them.
type Mark = mark

// GID is the group.
func (k mark) GID() uint32 { return k.gid }

func (m Marks) Take() Mark        { return m.m.take() }
func (m Marks) Release(k Mark)    { m.m.release(k) }
func (m Marks) Valid(k Mark) bool { return m.m.valid(k) }

// MarkCount is how many there are.
const MarkCount = markCount

// IdleAfter is how long an idle sandbox keeps its thread.
const IdleAfter = idleAfter

// HasThread reports whether the sandbox has a thread.
func (c *Confinement) HasThread() bool {
	c.turn.Lock()
	defer c.turn.Unlock()
	return c.cell != nil
}

// ParseStatus parses /proc/PID/status.
func ParseStatus(data []byte) (ppid, pgid, sid int, uid uint32, groups []uint32, ended bool) {
	t := parseStatus(data)
	return t.ppid, t.pgid, t.sid, t.uid, t.groups, t.ended
}

// ParseBorn parses /proc/PID/stat.
func ParseBorn(data []byte) uint64 { return parseBorn(data) }

// SendToBorn signals the process of that number if it was born then.
func SendToBorn(pid int, born uint64, byNumber bool) error {
	var r reader
	t := task{pid: pid, born: born}
	if byNumber {
		return r.sendByNumber(t, 9)
	}
	return r.send(t, 9)
}

// BornOf returns when the process was born.
func BornOf(pid int) uint64 {
	var r reader
	t, _, _ := r.task(pid)
	return t.born
}

// LimitThreads sets how many sandboxes keep a thread while idle, and how many may have one.
func (s *Spawner) LimitThreads(kept, atMost int) { s.cells.kept, s.cells.atMost = kept, atMost }

// Wait has the Spawner wait so long before it kills a child that was stopped before its exec.
func (s *Spawner) Wait(patience time.Duration) { s.patience = patience }

// Stuck is the number of children of this process that are stopped before their exec.
func Stuck() int {
	hung, _ := stuck(os.Getpid())
	return len(hung)
}

// ForkStopped starts a copy of this program and stops it before its first instruction.
func ForkStopped() (pid int, err error) { return forkStopped(nil) }

// OnThread runs f on a thread that dies with it.
func OnThread(f func()) { onThread(f) }
