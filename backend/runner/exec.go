package runner

import (
	"errors"

	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// exec starts a command and follows it to its exit. A client that hangs up leaves the process running, unless it said otherwise.
func (c *call) exec() error {
	req, o, err := c.order()
	if err != nil {
		return err
	}
	p, r, _, err := c.sb.start(c.r.Context(), o, true)
	if err != nil {
		return err
	}
	defer p.out.detach(r)
	defer c.hurryWhenGone(false)()
	s := c.openStream()
	err = s.send(wire.Start{Event: wire.EventStart, ID: p.id, PID: p.pid})
	if err == nil {
		err = s.copy(r, true)
	}
	if errors.Is(err, errClientHasGone) && req.KillOnDisconnect {
		p.out.detach(r) // the process must not wait for a reader while it is being killed
		c.killFor(p)
	}
	return nil
}

// killFor kills on behalf of a client that is not there to be told how it went.
func (c *call) killFor(p *process) {
	if _, err := p.kill(c.r.Context(), 0); err != nil {
		c.srv.cfg.Logger.Error("process of a client that has gone could not be killed",
			zap.String("sandbox", c.sb.id), zap.String("process", p.id), zap.Error(err))
	}
}

// output sends what a process has written, from the offsets that are asked for.
func (c *call) output() error {
	p, err := c.process()
	if err != nil {
		return err
	}
	var off [2]int64
	for stream := range off {
		if off[stream], err = c.count(eventName(stream) + "_offset"); err != nil {
			return err
		}
	}
	follow, err := c.flag("follow")
	if err != nil {
		return err
	}
	r, ok := p.out.attach(off, false)
	if !ok {
		return errBeyondTheEnd
	}
	defer p.out.detach(r)
	defer c.hurryWhenGone(false)()
	_ = c.openStream().copy(r, follow) // a follower that leaves changes nothing
	return nil
}
