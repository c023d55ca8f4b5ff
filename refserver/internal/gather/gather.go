// Package gather makes one system call of what a handler writes at once.
//
// The fault it prevents: net/http sends a large chunk as 4 KiB, which is what its own buffer holds, and then the rest. Of a stream that
// never pauses each such piece wakes the client for next to nothing, and where client and server share few cores this costs more than
// the copying does.
//
// A server takes part by serving on a [Listener] and having [Context] as its ConnContext; its handlers then write to a [Writer].
package gather

import (
	"context"
	"io"
	"net"
	"sync"
)

// small is the size of the pieces that are held: that of net/http's buffer, which is written when it is full.
const small = 4 << 10

// Listener returns l with TCP connections that can gather. Other connections it passes on as they are.
func Listener(l net.Listener) net.Listener { return listener{l} }

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		return &conn{TCPConn: tcp}, nil
	}
	return c, err
}

type key struct{}

// Context returns ctx with the connection of a request, for [Writer]. It is what http.Server.ConnContext asks for.
func Context(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, key{}, c)
}

// Writer returns a writer to w, each of whose writes takes as few system calls as the connection of ctx allows; w itself if that
// connection is not from a [Listener]. It is for one goroutine at a time, and for the time of the request. Of a write that fails a
// part may have been sent.
func Writer(ctx context.Context, w io.Writer) io.Writer {
	if c, ok := ctx.Value(key{}).(*conn); ok {
		return writer{to: w, conn: c}
	}
	return w
}

type writer struct {
	to   io.Writer
	conn *conn
}

func (w writer) Write(p []byte) (int, error) {
	w.conn.hold()
	n, err := w.to.Write(p)
	if sendErr := w.conn.release(); err == nil {
		err = sendErr
	}
	return n, err
}

// conn keeps small writes back while it is told to hold, until a large one or the release takes them along. The other ways to write
// that it inherits are not for that time.
type conn struct {
	*net.TCPConn

	mu    sync.Mutex // guards the fields below
	holds bool
	held  []byte
}

func (c *conn) Write(p []byte) (int, error) {
	held, kept := c.keep(p)
	switch {
	case kept:
		return len(p), nil
	case len(held) == 0:
		return c.TCPConn.Write(p)
	}
	n, err := (&net.Buffers{held, p}).WriteTo(c.TCPConn)
	return max(0, int(n)-len(held)), err
}

// keep adds p to what is held, if it is small enough; otherwise it returns what is to be sent before p.
func (c *conn) keep(p []byte) (held []byte, kept bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds && len(c.held)+len(p) <= 2*small {
		c.held = append(c.held, p...)
		return nil, true
	}
	held, c.held = c.held, nil
	return held, false
}

func (c *conn) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holds = true
}

// release sends what is still held.
func (c *conn) release() error {
	c.mu.Lock()
	held := c.held
	c.holds, c.held = false, nil
	c.mu.Unlock()
	if len(held) == 0 {
		return nil
	}
	_, err := c.TCPConn.Write(held)
	return err
}
