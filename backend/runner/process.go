package runner

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/keepwell-go/keepwell/backend/runner/spawn"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// killBudget bounds what comes after the grace of a kill: the time for SIGKILL to do its work.
const killBudget = 10 * time.Second

// process is one command, from its start until the history forgets it. Four goroutines belong to it at most: watch and two pumps,
// which end with the process and whoever inherited its output, and one that writes its stdin.
type process struct {
	id, tag string
	key     string // what the request that started it calls it
	cmd     wire.Command
	pid     int
	started time.Time
	sb      *sandbox
	sp      *spawn.Process
	out     *output
	stdin   *stdin        // nil: it was given none
	exited  chan struct{} // closed once status is set
	status  syscall.WaitStatus
	took    time.Duration
	kept    int64 // guarded by the mu of sb

	overtime  atomic.Bool // its timeout has come
	killTaken atomic.Bool // a kill has answered that it was the one
}

// pipes are the server's ends of what a process writes.
type pipes [2]*os.File

// run starts the goroutines of a process that has been started.
func (p *process) run(ends pipes, timeout time.Duration) {
	var timer *clock.Timer
	if timeout > 0 {
		timer = p.clock().AfterFunc(timeout, p.expire)
	}
	done := make(chan pumped, len(ends))
	for stream, end := range ends {
		go p.pump(stream, end, done)
	}
	go p.watch(ends, done, timer)
}

func (p *process) clock() clock.Clock { return p.sb.srv.cfg.Clock }

// expire is called when the timeout has come.
func (p *process) expire() {
	p.overtime.Store(true)
	if _, err := p.kill(context.Background(), 0); err != nil {
		p.sb.srv.cfg.Logger.Error("process is over its timeout and could not be killed",
			zap.String("sandbox", p.sb.id), zap.String("process", p.id), zap.Error(err))
	}
}

// watch records the exit as soon as the process was reaped, and ends its output once that was read.
func (p *process) watch(ends pipes, done <-chan pumped, timer *clock.Timer) {
	<-p.sp.Done()
	p.status, p.took = p.sp.Status(), p.clock().Since(p.started)
	if timer != nil {
		timer.Stop()
	}
	if p.stdin != nil {
		p.stdin.close()
	}
	p.sb.idle.processEnded()
	close(p.exited)

	p.out.letGo() // what is left fits into what is kept, so nothing is lost to a slow reader and nobody waits for one
	truncated := p.awaitPumps(ends, done)
	exit := p.exit()
	exit.Truncated = truncated
	p.out.end(exit)
	p.sb.finish(p)
}

// awaitPumps returns once all that the process wrote was read. Others may still hold its pipes: they are given a moment, then its
// output is cut short, though their own goes on to be read lest a write kill them.
func (p *process) awaitPumps(ends pipes, done <-chan pumped) (truncated bool) {
	left := len(ends)
	for ; left > 0 && len(done) > 0; left-- {
		<-done // mostly they come to the end before the exit is known, and no timer is needed
	}
	if left == 0 {
		return false
	}
	grace := p.clock().Timer(wire.PipeSeconds * time.Second)
	defer grace.Stop()
	for left > 0 {
		select {
		case how := <-done:
			left--
			truncated = truncated || how == pumpedSoFar
		case <-grace.C:
			for _, end := range ends {
				_ = end.SetReadDeadline(time.Unix(1, 0)) // it fails for those that are closed already
			}
		}
	}
	return truncated
}

// exit returns the last event, without Truncated. The process must have exited.
func (p *process) exit() wire.Exit {
	e := wire.Exit{Event: wire.EventExit, DurationMS: p.took.Milliseconds()}
	e.ExitCode, e.Signal = ending(p.status)
	// A timeout that comes while the process ends by itself has not ended it.
	e.TimedOut = p.overtime.Load() && p.status.Signaled() && p.status.Signal() == syscall.SIGKILL
	return e
}

// ending returns the exit code or the name of the signal.
func ending(status syscall.WaitStatus) (code *int, signal *string) {
	if status.Signaled() {
		name := unix.SignalName(status.Signal())
		if name == "" {
			name = fmt.Sprintf("SIG%d", status.Signal()) // a real-time signal has no name
		}
		return nil, &name
	}
	n := status.ExitStatus()
	return &n, nil
}

// describe returns the entry of a list.
func (p *process) describe() wire.Process {
	d := wire.Process{ID: p.id, PID: p.pid, Cmd: p.cmd, Tag: p.tag, StartedAtMS: p.started.UnixMilli(), Running: true}
	select {
	case <-p.exited:
		d.Running = false
		d.ExitCode, d.Signal = ending(p.status)
	default:
	}
	return d
}

// kill ends the whole tree, and goes on when whoever asked for it has left. It is true for one caller at most: the one that stopped
// the process.
func (p *process) kill(ctx context.Context, grace time.Duration) (bool, error) {
	ctx, cancel := p.clock().WithTimeout(context.WithoutCancel(ctx), grace+killBudget)
	defer cancel()
	killed, err := p.sp.Kill(ctx, grace)
	if err != nil {
		return false, err
	}
	if err := wait(ctx, p.exited, "the exit of process "+p.id); err != nil {
		return false, err
	}
	return killed && p.killTaken.CompareAndSwap(false, true), nil
}
