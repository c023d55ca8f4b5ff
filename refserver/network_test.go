package refserver_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
)

// network is one in memory: listeners by address. In a synctest bubble all that happens on it happens in virtual time.
type network struct {
	mu        sync.Mutex // guards the fields below
	listeners map[string]*pipeListener
}

// listen serves h at addr until the function it returns is called.
func (n *network) listen(addr string, h http.Handler) (shut func()) {
	l := &pipeListener{addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
	n.mu.Lock()
	if n.listeners == nil {
		n.listeners = map[string]*pipeListener{}
	}
	n.listeners[addr] = l
	n.mu.Unlock()
	hs := &http.Server{Handler: h}
	served := make(chan struct{})
	go func() { defer close(served); _ = hs.Serve(l) }()
	return func() {
		n.mu.Lock()
		if n.listeners[addr] == l {
			delete(n.listeners, addr)
		}
		n.mu.Unlock()
		_ = hs.Close()
		<-served
	}
}

func (n *network) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	addr = strings.TrimSuffix(addr, ":80")
	n.mu.Lock()
	l := n.listeners[addr]
	n.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: net.UnknownNetworkError(addr)}
	}
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type pipeListener struct {
	addr  string
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: l.addr, Net: "memory"} }
