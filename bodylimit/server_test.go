package bodylimit_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/bodylimit"
)

const (
	// limit of the servers in these tests.
	limit = 4 << 10
	// patience is how long a test waits for what should be there at once. It is never reached when all is well.
	patience = 20 * time.Second
)

// limiter listens to refused clients for long, so that no test depends on the speed of the machine; none of them waits for its end.
func limiter() *bodylimit.Limiter { return &bodylimit.Limiter{Max: limit, Drain: patience} }

// readAll is a handler that reads its body and tells how much it got.
func readAll(l *bodylimit.Limiter) http.Handler {
	return l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if l.Refuse(w, r, err) {
			return
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, "%d", n)
	}))
}

// decode is a handler that takes one JSON value.
func decode(l *bodylimit.Limiter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := bodylimit.DecodeJSON[any](l, w, r)
		if l.Refuse(w, r, err) {
			return
		}
		fmt.Fprintf(w, "%v", v)
	})
}

// logged hides the ResponseWriter of net/http as a logging middleware does, and says where it is.
type logged struct {
	http.ResponseWriter
	status int
}

func (l *logged) WriteHeader(status int) { l.status = status; l.ResponseWriter.WriteHeader(status) }

func (l *logged) Unwrap() http.ResponseWriter { return l.ResponseWriter }

func wrapped(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(&logged{ResponseWriter: w}, r) })
}

// hidden wraps as some middleware does that is older than http.ResponseController.
func hidden(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
	})
}

// serve runs h on a real socket, over HTTP/1 and over HTTP/2 with prior knowledge, without any timeout of its own.
func serve(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// raw is a client that does nothing by itself.
type raw struct {
	t    testing.TB
	conn net.Conn
	buf  *bufio.Reader
}

func dial(t testing.TB, s *httptest.Server) *raw {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &raw{t, conn, bufio.NewReader(conn)}
}

// head sends the head of a POST with these header lines.
func (c *raw) head(lines string) {
	c.t.Helper()
	c.send("POST / HTTP/1.1\r\nHost: x\r\n" + lines + "\r\n")
}

func (c *raw) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, s); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

func (c *raw) answer() *http.Response {
	c.t.Helper()
	res, err := http.ReadResponse(c.buf, nil)
	if err != nil {
		c.t.Fatalf("no answer: %v", err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatalf("the answer %d is cut off after %q: %v", res.StatusCode, body, err)
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	return res
}

// ends asserts that the server ends the connection without another word.
func (c *raw) ends() {
	c.t.Helper()
	rest, err := io.ReadAll(c.buf)
	if isTimeout(err) || len(rest) > 0 {
		c.t.Errorf("the connection goes on with %q, %v", rest, err)
	}
}

func isTimeout(err error) bool {
	netErr, ok := errors.AsType[net.Error](err)
	return ok && netErr.Timeout()
}

func tooLargeText(declared int) string {
	if declared < 0 {
		return fmt.Sprintf("bodylimit: body is over the limit of %d bytes", limit)
	}
	return fmt.Sprintf("bodylimit: body of %d bytes is over the limit of %d bytes", declared, limit)
}

// tooLarge asserts a 413 that announces the end of the connection.
func tooLarge(t testing.TB, res *http.Response, declared int) {
	t.Helper()
	refused(t, res, 413, "payload_too_large", tooLargeText(declared))
	if !res.Close {
		t.Error("the answer lacks Connection: close")
	}
}
