package spawn

import (
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
)

const (
	idleAfter  = 5 * time.Second // how long a cell outlives the last process of its sandbox
	idleAtMost = 5 * time.Minute // the look for processes left behind is repeated ever more rarely, up to this
)

// Confinement is the prepared confinement of one sandbox and the handle on all of its processes. It is safe for concurrent use.
type Confinement struct {
	s      *Spawner
	limits Limits
	as     identity // of its processes
	ownUID bool     // no process outside has the uid

	// turn is held by whoever uses the cell. One job runs at a time, so holding it for the length of a fork costs nothing.
	turn  sync.Mutex
	cell  *cell        // nil while nothing runs
	timer *clock.Timer // looks whether the cell may end; nil without a cell
	idle  time.Duration
	shut  bool

	mu      sync.Mutex // guards the fields below; taken after turn
	live    map[*Process]struct{}
	kills   int      // running KillAll calls: no starts
	refuses bool     // no starts any more
	lone    *Process // the only process ever started while the cell lived; nil for none or several
	made    int      // starts while the cell lived
}

// Confine prepares the confinement of one sandbox. It fails when the home or a further read-only path does not exist, or when this process may
// not give the sandbox the uid. The home belongs to the caller, who made it.
func (s *Spawner) Confine(l Limits) (*Confinement, error) {
	own := l.UID != 0 && l.UID != uint32(os.Getuid())
	if own && !s.able.UIDs {
		return nil, fmt.Errorf("spawn: confine %s: uid %d: %w", l.Name, l.UID, os.ErrPermission)
	}
	if l.UID == nobodyUID || l.UID == math.MaxUint32 || l.GID == math.MaxUint32 {
		return nil, fmt.Errorf("spawn: confine %s: uid %d, gid %d: %w", l.Name, l.UID, l.GID, os.ErrInvalid)
	}
	if st, err := os.Stat(l.Home); err != nil || !st.IsDir() {
		return nil, fmt.Errorf("spawn: confine %s: home %q is not a directory: %w", l.Name, l.Home, orNotExist(err))
	}
	set, err := s.landlock.ruleset(l)
	if err != nil {
		return nil, fmt.Errorf("spawn: confine %s: %w", l.Name, err)
	}
	if set != nil {
		set.Close() // made again whenever the sandbox gets a cell, so that an idle one holds no descriptor
	}
	return &Confinement{s: s, limits: l, as: newIdentity(l), ownUID: own, live: map[*Process]struct{}{}}, nil
}

// Abilities says what is enforced on this sandbox.
func (c *Confinement) Abilities() Abilities {
	a := c.s.able
	if c.limits.Open {
		a.LandlockABI, a.NoTCPBind, a.OwnIPC = 0, false, false
	}
	a.UIDs = c.ownUID
	return a
}

func orNotExist(err error) error {
	if err == nil {
		return os.ErrNotExist
	}
	return err
}

// inside runs f on the thread inside the sandbox, which it starts if there is none.
func (c *Confinement) inside(f func()) error {
	c.turn.Lock()
	defer c.turn.Unlock()
	return c.insideLocked(f)
}

func (c *Confinement) insideLocked(f func()) error {
	if c.shut {
		return fmt.Errorf("%w: %s", ErrClosed, c.limits.Name)
	}
	if c.cell == nil {
		if err := c.openLocked(); err != nil {
			return err
		}
	}
	c.s.cells.use(c)
	c.cell.do(f)
	return nil
}

func (c *Confinement) openLocked() error {
	set, err := c.s.landlock.ruleset(c.limits)
	if err != nil {
		return err
	}
	if set != nil {
		defer set.Close()
	}
	if err := c.s.cells.take(c); err != nil {
		return err
	}
	if c.cell, err = newCell(func() error { return c.enter(set) }); err != nil {
		c.s.cells.drop(c)
		return err
	}
	c.idle = idleAfter
	c.timer = c.s.clk.AfterFunc(c.idle, c.retire)
	return nil
}

// enter takes the calling thread into the sandbox. What its processes share without a file ends with its cell, which outlives them.
func (c *Confinement) enter(set *os.File) error {
	if c.s.able.OwnIPC && !c.limits.Open {
		if err := ownIPC(); err != nil {
			return err
		}
	}
	return enter(set, c.limits.Open)
}

// retire ends the cell if nothing of the sandbox is left, and looks again later if something is.
func (c *Confinement) retire() {
	c.turn.Lock()
	defer c.turn.Unlock()
	if c.cell == nil || c.retireLocked() {
		return
	}
	if c.running() == 0 {
		c.idle = min(2*c.idle, idleAtMost)
	}
	c.timer.Reset(c.idle)
}

// retireLocked ends the cell if there is one and nothing of the sandbox is left, and says whether it has.
func (c *Confinement) retireLocked() bool {
	if c.cell == nil || c.running() > 0 {
		return false
	}
	left, err := c.insidersLocked()
	if err != nil || len(left) > 0 {
		return false
	}
	c.closeCellLocked()
	return true
}

func (c *Confinement) closeCellLocked() {
	c.timer.Stop()
	c.cell.close()
	c.cell, c.timer = nil, nil
	c.s.cells.drop(c)
	c.mu.Lock()
	c.lone, c.made = nil, 0
	c.mu.Unlock()
}

// Close gives up what Confine prepared; it does not kill, and what is still alive inside an ordinary user's sandbox is no longer found
// after it. It may be called twice.
func (c *Confinement) Close() {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.shut = true
	if c.cell != nil {
		c.closeCellLocked()
	}
}

func (c *Confinement) running() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.live)
}

func (c *Confinement) remember(p *Process) {
	c.mu.Lock()
	c.live[p] = struct{}{}
	c.made++
	if c.lone = nil; c.made == 1 {
		c.lone = p
	}
	c.mu.Unlock()
	c.s.mu.Lock()
	c.s.procs[p.pid] = p
	c.s.mu.Unlock()
}

// forget takes a reaped process out. Its number may be another's by now, who stays.
func (c *Confinement) forget(p *Process) {
	c.s.mu.Lock()
	if c.s.procs[p.pid] == p {
		delete(c.s.procs, p.pid)
	}
	c.s.mu.Unlock()
	c.mu.Lock()
	delete(c.live, p)
	c.mu.Unlock()
	c.s.marks.release(p.mark)
}
