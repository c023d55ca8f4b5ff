package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/keepwell-go/keepwell/backend/runner/spawn"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// start starts what is ordered. A process that was started under the same key before is returned instead, with again true, whether it
// runs or has ended; of several starts at once the first one counts. With watched there is a reader at the beginning of the output,
// and no byte is written before it is there.
func (sb *sandbox) start(ctx context.Context, o order, watched bool) (p *process, r *reader, again bool, err error) {
	p, l, mine, err := sb.begin(o.key)
	switch {
	case err != nil:
		return nil, nil, false, err
	case mine:
		defer sb.launched(o.key, l)
		l.proc, r, l.err = sb.launch(o, watched)
		return l.proc, r, false, l.err
	case l != nil:
		if err := wait(ctx, l.done, "the first start of this id"); err != nil {
			return nil, nil, false, err
		}
		p, err = l.proc, l.err
	}
	if err == nil && watched {
		r, _ = p.out.attach([2]int64{}, true) // the beginning is never beyond the end
	}
	return p, r, true, err
}

// begin returns the process of this key, or its launch, and whether that is for the caller to do.
func (sb *sandbox) begin(key string) (p *process, l *launch, mine bool, err error) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	switch {
	case sb.closing:
		return nil, nil, false, errSandboxGone
	case sb.keys[key] != nil:
		return sb.keys[key], nil, false, nil
	case sb.launches[key] != nil:
		return nil, sb.launches[key], false, nil
	case sb.conf == nil:
		return nil, nil, false, &failure{503, wire.CodeCannotStart, "this runner starts no commands"}
	case sb.open+2*len(sb.launches) >= 2*wire.MaxRunning:
		return nil, nil, false, &failure{429, wire.CodeQuotaExceeded, fmt.Sprintf("%d processes run already, which is the limit", wire.MaxRunning)}
	}
	if sb.launches == nil {
		sb.launches = map[string]*launch{}
	}
	l = &launch{done: make(chan struct{}), err: errors.New("runner: the start did not come to its end")}
	sb.launches[key] = l
	return nil, l, true, nil
}

// launched makes the outcome of a launch known.
func (sb *sandbox) launched(key string, l *launch) {
	sb.mu.Lock()
	delete(sb.launches, key)
	sb.mu.Unlock()
	close(l.done)
}

// launch starts a process, or leaves nothing behind.
func (sb *sandbox) launch(o order, watched bool) (*process, *reader, error) {
	if err := sb.files.checkDir(o.cwd); err != nil {
		return nil, nil, err
	}
	pl, err := newPlumbing(sb.null, o.stdin != nil || o.openStdin)
	if err != nil {
		return nil, nil, cannotStart(o, err)
	}
	defer pl.closeTheirs()
	p := &process{id: o.id, key: o.key, tag: o.tag, cmd: o.cmd, sb: sb, out: newOutput(), exited: make(chan struct{}), stdin: pl.stdin}
	p.started = p.clock().Now()
	p.sp, err = sb.conf.Start(spawn.Command{
		ID: o.id, Argv: o.argv, Env: sb.environ(o.env), Dir: filepath.Join(sb.home, o.cwd),
		Stdin: pl.theirs[0], Stdout: pl.theirs[1], Stderr: pl.theirs[2],
	})
	if err != nil {
		pl.closeOurs()
		return nil, nil, cannotStart(o, err)
	}
	p.pid = p.sp.PID()
	var r *reader
	if watched {
		r, _ = p.out.attach([2]int64{}, true)
	}
	if o.stdin != nil {
		p.stdin.turn <- struct{}{} // nobody else can have it yet
		go p.feed(*o.stdin, !o.openStdin)
	}
	sb.add(p)
	p.run(pl.ours, o.timeout)
	return p, r, nil
}

// add lists a process that has been started.
func (sb *sandbox) add(p *process) {
	sb.idle.processStarted()
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.procs == nil {
		sb.procs, sb.keys = map[string]*process{}, map[string]*process{}
	}
	sb.procs[p.id], sb.keys[p.key] = p, p
	sb.open += len(pipes{})
}

// feed writes the whole of what a start request brings as stdin, in a turn that was taken for it. It ends with the process, whose
// exit closes the pipe.
func (p *process) feed(data string, eof bool) {
	_ = p.stdin.writeInTurn(context.Background(), []byte(data), eof) // a process may leave its stdin unread
}

// environ returns the environment of a process: a fixed base, what the sandbox sets, what the request sets. Nothing of the server's own.
func (sb *sandbox) environ(request map[string]string) []string {
	all := map[string]string{
		"PATH":    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME":    sb.home,
		"TMPDIR":  "/tmp",
		"LANG":    "C.UTF-8",
		"SHELL":   "/bin/sh",
		"USER":    "sandbox",
		"LOGNAME": "sandbox",
	}
	maps.Copy(all, sb.env)
	maps.Copy(all, request)
	list := make([]string, 0, len(all))
	for name, value := range all {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// cannotStart tells a command that can never start from a machine that cannot start it now.
func cannotStart(o order, err error) error {
	if errors.Is(err, spawn.ErrClosed) {
		return errSandboxGone
	}
	f := &failure{400, wire.CodeCannotStart, fmt.Sprintf("cannot start %.200q: %v", o.argv[0], err)}
	for _, passing := range []error{spawn.ErrThreads, syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, passing) {
			f.status = 503
		}
	}
	return f
}
