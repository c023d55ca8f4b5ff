package bodylimit_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwell-go/keepwell/bodylimit"
)

// pipes is a listener of one connection in memory, whose deadlines follow the virtual time of a bubble.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// inBubble runs f as the client of h in virtual time.
func inBubble(t *testing.T, h http.Handler, f func(t *testing.T, c *raw)) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{conns: make(chan net.Conn, 1), done: make(chan struct{})}
		s := &http.Server{Handler: h}
		go func() { _ = s.Serve(p) }() // ends with s.Close
		client, server := net.Pipe()
		p.conns <- server
		f(t, &raw{t, client, bufio.NewReader(client)})
		_ = client.Close()
		_ = s.Close()
	})
}

func TestHowLongARefusedClientIsListenedTo(t *testing.T) { // R53
	const ms = time.Millisecond
	silent := func(*raw) {}
	dripping := func(c *raw) {
		for {
			if _, err := io.WriteString(c.conn, "x"); err != nil {
				return
			}
			time.Sleep(7 * ms)
		}
	}
	selfMade := func(l *bodylimit.Limiter) http.Handler {
		return l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadAll(r.Body); err != nil {
				w.WriteHeader(http.StatusRequestEntityTooLarge)
			}
		}))
	}
	chunked := "Transfer-Encoding: chunked\r\n"
	over := chunk(strings.Repeat("x", limit+1))
	declared := fmt.Sprintf("Content-Length: %d\r\n", limit+1)
	for _, c := range []struct {
		name    string
		drain   time.Duration
		handler func(*bodylimit.Limiter) http.Handler
		head    string
		body    string
		goesOn  func(*raw)
		answer  time.Duration
		end     time.Duration
	}{
		{"declared_silent", 0, readAll, declared, "", silent, 0, 100 * ms},
		{"declared_dripping", 0, readAll, declared, "", dripping, 0, 100 * ms},
		{"declared_silent_wrapped", 0, servers["wrapped"], declared, "", silent, 0, 100 * ms},
		{"declared_silent_longer", time.Second, decode, declared, "", silent, 0, time.Second},
		{"declared_done", time.Second, readAll, declared, strings.Repeat("x", limit+1), silent, 0, 0},
		{"encoded_silent", 0, readAll, "Content-Length: 5\r\nContent-Encoding: br\r\n", "", silent, 0, 100 * ms},
		{"chunked_silent", 0, readAll, chunked, over, silent, 0, 100 * ms},
		{"chunked_done", 0, readAll, chunked, over + lastChunk, silent, 0, 0},
		{"chunked_silent_self_made", 70 * ms, selfMade, chunked, over, silent, 70 * ms, 70 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &bodylimit.Limiter{Max: limit, Drain: c.drain}
			inBubble(t, c.handler(l), func(t *testing.T, conn *raw) {
				start := time.Now()
				conn.head(c.head)
				var sender sync.WaitGroup
				defer sender.Wait()
				sender.Go(func() { // a pipe has no buffer: the server answers while the client is sending
					_, _ = io.WriteString(conn.conn, c.body)
					c.goesOn(conn)
				})
				if res := conn.answer(); res.StatusCode/100 != 4 || !res.Close {
					t.Errorf("answered %d, close %t", res.StatusCode, res.Close)
				}
				if got := time.Since(start); got != c.answer {
					t.Errorf("answered after %v, want %v", got, c.answer)
				}
				conn.ends()
				if got := time.Since(start); got != c.end {
					t.Errorf("ended after %v, want %v", got, c.end)
				}
			})
		})
	}
}

// The reason for all this: net/http alone says nothing to a silent client.
func TestMaxBytesHandlerSaysNothingToASilentClient(t *testing.T) {
	h := http.MaxBytesHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > limit {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	}), limit)
	inBubble(t, h, func(t *testing.T, c *raw) {
		c.head(fmt.Sprintf("Content-Length: %d\r\n", limit+1))
		if err := c.conn.SetDeadline(time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.buf.ReadByte(); !isTimeout(err) {
			t.Errorf("net/http has become better: %v", err)
		}
	})
}

// deadlines is a ResponseWriter that counts how often its connection is hurried.
type deadlines struct {
	*httptest.ResponseRecorder
	set int
}

func (d *deadlines) SetReadDeadline(time.Time) error { d.set++; return nil }

// oversize is a request, in the given version of HTTP, whose body goes on after it was closed.
func oversize(major int) *http.Request {
	r := post(undeclared(strings.Repeat("x", limit+1)))
	r.ProtoMajor = major
	return r
}

func TestTheConnectionIsHurriedWhileItIsThisRequests(t *testing.T) {
	l := limiter()
	read := func(w http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) }
	var late io.Reader
	leave := func(w http.ResponseWriter, r *http.Request) { late = r.Body }
	for _, c := range []struct {
		name  string
		major int
		use   func(w http.ResponseWriter, r *http.Request)
		want  int
	}{
		{"in_the_handler", 1, l.Handler(http.HandlerFunc(read)).ServeHTTP, 1},
		{"never_over_http2", 2, l.Handler(http.HandlerFunc(read)).ServeHTTP, 0},
		{"not_after_the_handler", 1, func(w http.ResponseWriter, r *http.Request) {
			l.Handler(http.HandlerFunc(leave)).ServeHTTP(w, r)
			_, err := io.ReadAll(late)
			wantTooLarge(t, err, true, limit, -1)
		}, 0},
		{"not_after_close", 1, func(w http.ResponseWriter, r *http.Request) {
			body, err := l.Body(w, r)
			if err != nil {
				t.Fatal(err)
			}
			if err := body.Close(); err != nil {
				t.Error(err)
			}
			_, err = io.ReadAll(body)
			wantTooLarge(t, err, true, limit, -1)
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
			c.use(w, oversize(c.major))
			if w.set != c.want {
				t.Errorf("hurried %d times, want %d", w.set, c.want)
			}
			if len(w.Header()) > 0 {
				t.Errorf("reading set %v, perhaps while a proxy's other goroutine writes the same map", w.Header())
			}
		})
	}
}
