package runner

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/bodylimit"
)

// process returns the process that the path names. Nothing but an id names one.
func (c *call) process() (*process, error) {
	if err := checkID(c.pid); err != nil {
		return nil, err
	}
	p := c.sb.process(c.pid)
	if p == nil {
		return nil, errNoProcess
	}
	return p, nil
}

// order reads a start request.
func (c *call) order() (wire.StartRequest, order, error) {
	req, err := bodylimit.DecodeJSON[wire.StartRequest](c.srv.json, c.w, c.r)
	if err != nil {
		return req, order{}, err
	}
	o, err := newOrder(req, c.r.Header.Get(wire.ProcessIDHeader), c.sb.home)
	c.srv.name(&o)
	return req, o, err
}

func (c *call) start() error {
	_, o, err := c.order()
	if err != nil {
		return err
	}
	o.openStdin = o.openStdin || o.stdin == nil
	p, _, again, err := c.sb.start(c.r.Context(), o, false)
	if err != nil {
		return err
	}
	c.answer(http.StatusOK, wire.Started{ID: p.id, PID: p.pid, Cmd: p.cmd, Tag: p.tag, Reattached: again})
	return nil
}

func (c *call) get() error {
	p, err := c.process()
	if err != nil {
		return err
	}
	c.answer(http.StatusOK, p.describe())
	return nil
}

// list answers a page in the order of ids. A process that starts meanwhile appears if its id lies ahead of the cursor.
func (c *call) list() error {
	limit, err := c.count("limit")
	if err != nil {
		return err
	}
	cursor := c.query.Get("cursor")
	if cursor != "" {
		if err := checkID(cursor); err != nil {
			return err
		}
	}
	all := c.sb.processes()
	all = slices.DeleteFunc(all, func(p *process) bool { return p.id <= cursor })
	slices.SortFunc(all, func(a, b *process) int { return strings.Compare(a.id, b.id) })
	if limit > 0 && int64(len(all)) > limit {
		all = all[:limit]
		c.w.Header().Set(wire.NextCursor, all[limit-1].id)
	}
	page := make([]wire.Process, 0, len(all))
	for _, p := range all {
		page = append(page, p.describe())
	}
	c.answer(http.StatusOK, page)
	return nil
}

// count reads a parameter that is a number not below 0; 0 where it is absent.
func (c *call) count(name string) (int64, error) {
	text := c.query.Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, badRequest("%s must be a number not below 0, not %.40q", name, text)
	}
	return n, nil
}

// flag reads a parameter that is 1, 0 or absent.
func (c *call) flag(name string) (bool, error) {
	text := c.query.Get(name)
	on, err := strconv.ParseBool(text)
	if text != "" && err != nil {
		return false, badRequest("%s must be 1 or 0, not %.40q", name, text)
	}
	return on, nil
}

func (c *call) signal() error {
	p, err := c.process()
	if err != nil {
		return err
	}
	req, err := bodylimit.DecodeJSON[wire.SignalRequest](c.srv.json, c.w, c.r)
	if err != nil {
		return err
	}
	sig := signalNamed(req.Signal)
	if sig == 0 {
		return badRequest("signal %.40q has no such name", req.Signal)
	}
	sent, err := p.sp.Signal(sig)
	if err != nil {
		return unknown("signal", err)
	}
	c.answer(http.StatusOK, wire.Signaled{ID: p.id, Signaled: sent})
	return nil
}

// signalNamed returns the signal called SIGTERM or TERM; 0 if there is none.
func signalNamed(name string) syscall.Signal {
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	return unix.SignalNum(name)
}

// kill answers once the exit is confirmed, not when a signal was sent.
func (c *call) kill() error {
	p, err := c.process()
	if err != nil {
		return err
	}
	grace, err := c.grace()
	if err != nil {
		return err
	}
	killed, err := p.kill(c.r.Context(), grace)
	if err != nil {
		return unknown("whether process "+p.id+" is gone could not be told", err)
	}
	c.answer(http.StatusOK, wire.Killed{ID: p.id, Killed: killed})
	return nil
}

// maxGrace bounds how long a kill may be asked to take.
const maxGrace = 5 * time.Minute

// grace is none for DELETE, and what :kill asks for.
func (c *call) grace() (time.Duration, error) {
	if c.r.Method == http.MethodDelete {
		return 0, nil
	}
	text := c.query.Get("grace")
	if text == "" {
		return wire.GraceSeconds * time.Second, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(0 <= n && n <= maxGrace.Seconds()) {
		return 0, badRequest("grace must be 0 to %g seconds, not %.40q", maxGrace.Seconds(), text)
	}
	return time.Duration(n * float64(time.Second)), nil
}

func (c *call) writeStdin() error {
	p, err := c.process()
	if err != nil {
		return err
	}
	req, err := bodylimit.DecodeJSON[wire.StdinRequest](c.srv.json, c.w, c.r)
	if err != nil {
		return err
	}
	data := req.DataB64
	if req.Data != "" {
		data = []byte(req.Data)
	}
	switch {
	case req.Data != "" && len(req.DataB64) > 0:
		return errDataTwice
	case len(data) == 0 && !req.EOF:
		return errNothingToStdin
	case p.stdin == nil:
		return errStdinIsClosed
	}
	if err := p.stdin.write(c.r.Context(), data, req.EOF); err != nil {
		if errors.Is(err, errStdinClosed) {
			return errStdinIsClosed
		}
		return errClientHasGone
	}
	c.answer(http.StatusOK, wire.Done{OK: true})
	return nil
}
