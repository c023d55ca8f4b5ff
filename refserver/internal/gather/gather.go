// Package gather makes one system call of what a handler writes at once.
//
// The fault it prevents: net/http sends a large chunk as 4 KiB, which is what its own buffer holds, and then the rest, and the end of the
// chunk once there is more to say. Of a stream that never pauses each such piece wakes the client for next to nothing, and where client
// and server share few cores this costs more than the copying does; of one that pauses the end is missed, for there are clients that
// hand out no chunk before they have read it.
//
// A server takes part by serving on a [Listener] and having [Context] as its ConnContext; its handlers then write to a [Writer].
package gather

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"sync"
)

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

// Writer writes to a client and flushes each write, in one system call if the connection is from a [Listener]. It is for one goroutine
// at a time, and for the time of the request. Of a write that fails a part may have been sent.
type Writer struct {
	to   http.ResponseWriter
	conn *conn // nil: it does not gather
}

// NewWriter returns a Writer to w, the answer to the request of ctx.
func NewWriter(ctx context.Context, w http.ResponseWriter) *Writer {
	c, _ := ctx.Value(key{}).(*conn)
	return &Writer{to: w, conn: c}
}

func (w *Writer) Write(p []byte) (int, error) {
	if w.conn == nil {
		return w.pass(p)
	}
	w.conn.hold(p)
	n, err := w.pass(p)
	if sendErr := w.conn.release(); err == nil {
		err = sendErr
	}
	return n, err
}

func (w *Writer) pass(p []byte) (int, error) {
	n, err := w.to.Write(p)
	if err == nil {
		err = http.NewResponseController(w.to).Flush()
	}
	return n, err
}

// conn keeps back what is written to it while it is told to hold, until the release sends all of it. The other ways to write that it
// inherits are not for that time.
type conn struct {
	*net.TCPConn

	mu    sync.Mutex // guards the fields below
	holds bool
	block []byte // what the handler writes, which lasts until the release
	held  net.Buffers
}

func (c *conn) Write(p []byte) (int, error) {
	if c.keep(p) {
		return len(p), nil
	}
	return c.TCPConn.Write(p)
}

// keep adds p to what is held. Most of a large block comes as a part of that very block, which need not be copied.
func (c *conn) keep(p []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.holds {
		return false
	}
	if !partOf(c.block, p) {
		p = bytes.Clone(p)
	}
	c.held = append(c.held, p)
	return true
}

// partOf says whether p was sliced off block: then both end in the same place of memory, if only in the room behind their length.
func partOf(block, p []byte) bool {
	return cap(p) > 0 && cap(block) >= cap(p) && &block[:cap(block)][cap(block)-1] == &p[:cap(p)][cap(p)-1]
}

func (c *conn) hold(block []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holds, c.block = true, block
}

// release sends what is held.
func (c *conn) release() error {
	c.mu.Lock()
	held := c.held
	c.holds, c.block, c.held = false, nil, nil
	c.mu.Unlock()
	if len(held) == 0 {
		return nil
	}
	_, err := held.WriteTo(c.TCPConn)
	return err
}
