package runner

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/keepwell-go/keepwell/backend/runner/spawn"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// sandbox is what the Server knows of one sandbox. What grows with use is made on first use.
type sandbox struct {
	id, home string
	env      map[string]string
	conf     *spawn.Confinement // nil: no commands
	ownsConf bool
	srv      *Server
	null     *os.File // stdin of commands that are given none
	idle     *idleClock
	files    *workspace
	ctx      context.Context // ends when the sandbox is gone
	cancel   context.CancelFunc

	mu       sync.Mutex // guards the fields below
	closing  bool
	quiet    chan struct{} // closed when closing and the last request has left
	requests int
	launches map[string]*launch  // starts under way, by the key of their order
	procs    map[string]*process // running and finished, by id
	keys     map[string]*process // the same, by the key of the order that started them
	open     int                 // streams of processes that are still read
	history  []*process          // finished ones, oldest first
	kept     int64               // bytes of output that history holds
}

// launch is a start under way, which a second start of the same id waits for. proc and err are set before done is closed.
type launch struct {
	done chan struct{}
	proc *process
	err  error
}

func newSandbox(s *Server, sb Sandbox, files *workspace, made *spawn.Confinement) *sandbox {
	ctx, cancel := context.WithCancel(context.Background())
	conf := sb.Confinement
	if conf == nil {
		conf = made
	}
	return &sandbox{
		id: sb.ID, home: sb.Home, env: sb.Env, conf: conf, ownsConf: made != nil, srv: s,
		idle: newIdleClock(s.cfg.Clock), files: files, ctx: ctx, cancel: cancel, quiet: make(chan struct{}),
	}
}

// enter admits a request, which leave ends; false when the sandbox is going.
func (sb *sandbox) enter() bool {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.closing {
		return false
	}
	sb.requests++
	return true
}

func (sb *sandbox) leave() {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.requests--
	sb.quietLocked()
}

// quietLocked tells remove that the last request has left.
func (sb *sandbox) quietLocked() {
	if !sb.closing || sb.requests > 0 {
		return
	}
	select {
	case <-sb.quiet:
	default:
		close(sb.quiet)
	}
}

// remove ends everything inside. It may be called again, and by several at once.
func (sb *sandbox) remove(ctx context.Context) error {
	launches := sb.refuse()
	if sb.conf != nil { // before the launches are waited for: what holds one up is inside, and gets each of those that queue behind it too
		sb.conf.Refuse()
		if err := sb.conf.KillAll(ctx); err != nil {
			return err
		}
	}
	for _, l := range launches {
		if err := wait(ctx, l.done, "a process that was being started"); err != nil {
			return err
		}
	}
	for _, p := range sb.processes() {
		if err := wait(ctx, p.exited, "process "+p.id); err != nil {
			return err
		}
		if err := wait(ctx, p.out.ended, "the output of process "+p.id); err != nil {
			return err
		}
	}
	sb.cancel()
	if err := wait(ctx, sb.quiet, "requests under way"); err != nil {
		return err
	}
	sb.files.close()
	if sb.ownsConf {
		sb.conf.Close()
	}
	return nil
}

func wait(ctx context.Context, done <-chan struct{}, what string) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
	}
}

// refuse closes the sandbox for new work and returns the starts that were let in before.
func (sb *sandbox) refuse() []*launch {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.closing = true
	sb.quietLocked()
	all := make([]*launch, 0, len(sb.launches))
	for _, l := range sb.launches {
		all = append(all, l)
	}
	return all
}

func (sb *sandbox) processes() []*process {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	all := make([]*process, 0, len(sb.procs))
	for _, p := range sb.procs {
		all = append(all, p)
	}
	return all
}

func (sb *sandbox) process(id string) *process {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.procs[id]
}

// finish moves a process that has ended into the history, where the oldest ones give way: their records beyond the number kept, and
// their output beyond the bytes kept. Running processes never give way.
func (sb *sandbox) finish(p *process) {
	size := p.out.size()
	sb.mu.Lock()
	defer sb.mu.Unlock()
	p.kept = size
	sb.kept += size
	sb.history = append(sb.history, p)
	for len(sb.history) > wire.MaxFinished {
		old := sb.history[0]
		sb.history[0] = nil
		sb.history = sb.history[1:]
		sb.kept -= old.kept
		delete(sb.procs, old.id)
		delete(sb.keys, old.key)
	}
	for i := 0; sb.kept > wire.MaxFinishedOutput && i < len(sb.history)-1; i++ {
		old := sb.history[i]
		if old.kept > 0 {
			old.out.forget()
			sb.kept -= old.kept
			old.kept = 0
		}
	}
}

// activity returns what is going on. A legacy runner does not say which protocol it speaks: that came with the next one.
func (sb *sandbox) activity() wire.Activity {
	a := sb.idle.activity()
	if sb.srv.legacy == nil {
		a.Protocol = sb.srv.cfg.Protocol
	}
	return a
}

// settled says that nothing more will be read of one stream of a process.
func (sb *sandbox) settled() {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.open--
}
