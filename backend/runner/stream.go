package runner

import (
	"context"
	"net/http"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

const (
	readSize  = 64 << 10  // bytes of a process's output that make up one event at most
	writeSize = 128 << 10 // bytes of events that are enough for one write
	ping      = wire.PingSeconds * time.Second

	// lastWords is how long a client that does not read is waited for when the sandbox is gone. It is time on the socket, which only
	// the real clock measures.
	lastWords = 2 * time.Second
)

// buffers are what moving output takes. They are shared by all streams and held only while there is something to move.
type buffers struct {
	raw   []byte // as the process wrote it
	lines []byte // as it is sent
}

func newBuffers() *buffers { return &buffers{raw: make([]byte, readSize)} }

func (s *Server) takeBuffers() *buffers { return s.bufs.Get().(*buffers) }

// stream is an answer made of events.
type stream struct {
	c      *call
	flush  func() error
	silent *clock.Timer // fires when a ping is due; nil before the first wait
}

// openStream begins the answer. The status is sent with the first event.
func (c *call) openStream() *stream {
	h := c.w.Header()
	h.Set("Content-Type", wire.StreamType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	return &stream{c: c, flush: http.NewResponseController(c.w).Flush}
}

// send writes one event and lets it go.
func (s *stream) send(event any) error {
	b := s.c.srv.takeBuffers()
	defer s.c.srv.bufs.Put(b)
	b.lines = appendLine(b.lines[:0], event)
	if _, err := s.c.w.Write(b.lines); err != nil {
		return errClientHasGone
	}
	return s.letGo()
}

func (s *stream) letGo() error {
	if s.flush() != nil {
		return errClientHasGone
	}
	return nil
}

// copy sends what r finds until the exit, or with follow unset until there is no more for now. The error is errClientHasGone.
func (s *stream) copy(r *reader, follow bool) error {
	defer s.stop()
	ctx, gone := s.c.r.Context(), s.c.sb.ctx
	if err := s.letGo(); err != nil { // the client learns that it was let in
		return err
	}
	for {
		last := gone.Err() != nil // asked first: an exit that came before the end is found
		if last {
			r.stop() // or a process that could not be killed might print for ever
		}
		ended, err := s.copyReady(r, last)
		switch {
		case ended || err != nil:
			return err
		case last:
			return s.send(wire.Failure{Event: wire.EventError, Error: errSandboxGone.text, Code: wire.CodeSandboxGone})
		case gone.Err() != nil:
			continue
		case !follow:
			return s.letGo()
		}
		if err := s.await(ctx, gone, r.wake); err != nil {
			return err
		}
	}
}

// copyReady sends what is there, and with it, last of all, the exit, after which the caller has nothing left to do. Unless this is the
// last time it returns when the sandbox is gone: there may always be more.
func (s *stream) copyReady(r *reader, last bool) (ended bool, err error) {
	b := s.c.srv.takeBuffers()
	defer s.c.srv.bufs.Put(b)
	sent := false
	for {
		more := b.fill(r)
		if len(b.lines) > 0 {
			if _, err := s.c.w.Write(b.lines); err != nil {
				return false, errClientHasGone
			}
			sent = true
		}
		switch {
		case more == foundExit:
			return true, nil // it leaves together with the end of the answer
		case more == foundNothing && sent:
			return false, s.letGo()
		case more == foundNothing, !last && s.c.sb.ctx.Err() != nil:
			return false, nil
		}
	}
}

// fill sets lines to what r finds, until that is enough for one write, and returns what it found last: every write to the client is
// several system calls.
func (b *buffers) fill(r *reader) (last found) {
	b.lines = b.lines[:0]
	for {
		it := r.next(b.raw)
		switch it.found {
		case foundData:
			b.lines = appendOutput(b.lines, it.stream, b.raw[:it.to-it.from], it.from)
		case foundGap:
			b.lines = appendLine(b.lines, wire.Gap{Event: wire.EventGap, Stream: eventName(it.stream), From: it.from, To: it.to})
		case foundExit:
			b.lines = appendLine(b.lines, it.exit)
		}
		if it.found == foundExit || it.found == foundNothing || len(b.lines) >= writeSize {
			return it.found
		}
	}
}

// await returns when there may be more to send, and keeps the stream open meanwhile.
func (s *stream) await(ctx, gone context.Context, wake <-chan struct{}) error {
	if s.silent == nil {
		s.silent = s.c.srv.cfg.Clock.Timer(ping)
	} else {
		s.silent.Reset(ping)
	}
	for {
		select {
		case <-wake:
			return nil
		case <-gone.Done():
			return nil
		case <-ctx.Done():
			return errClientHasGone
		case <-s.silent.C:
			if err := s.send(wire.Ping{Event: wire.EventPing}); err != nil {
				return err
			}
			s.silent.Reset(ping)
		}
	}
}

func (s *stream) stop() {
	if s.silent != nil {
		s.silent.Stop()
	}
}

// hurryWhenGone bounds what the client may still take once the sandbox is gone, so that nothing waits for it. The function it returns
// must be called when the request is over.
func (c *call) hurryWhenGone(reads bool) (over func()) {
	rc := http.NewResponseController(c.w)
	hurried := make(chan struct{})
	stop := context.AfterFunc(c.sb.ctx, func() {
		defer close(hurried)
		_ = rc.SetWriteDeadline(time.Now().Add(lastWords))
		if reads {
			_ = rc.SetReadDeadline(time.Now())
		}
	})
	return func() {
		if stop() {
			return
		}
		<-hurried
		_ = rc.SetWriteDeadline(time.Time{}) // the connection may go on to another request
	}
}
