package bodylimit

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"sync"
)

// reader passes on no more bytes of src than the limit allows. It keeps its own verdict, so that it does not matter what those who read
// through it make of an error. Like any body it is for one goroutine at a time.
type reader struct {
	src    io.ReadCloser
	left   int64 // bytes that may still be returned
	err    error // repeated by every later Read
	client *client
}

// sentBody is the reader of what comes from the connection, with its client, in one allocation.
type sentBody struct {
	reader
	client client
}

func (b *reader) Read(p []byte) (int, error) {
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	if int64(len(p))-1 > b.left {
		p = p[:b.left+1] // the one byte more tells a body of exactly the limit from a longer one
	}
	n, err := b.src.Read(p)
	if int64(n) > b.left {
		n = int(b.left)
		err = &TooLargeError{Limit: b.client.limiter.Max, Declared: -1}
		b.client.hurry()
	} else if err != nil && err != io.EOF {
		err = b.theirs(err)
	}
	b.left -= int64(n)
	b.err = err
	return n, err
}

// theirs returns err, as an error of this package if it is that of a smaller limit which net/http keeps around this one.
func (b *reader) theirs(err error) error {
	e, ok := errors.AsType[*http.MaxBytesError](err)
	if !ok {
		return err
	}
	b.client.hurry()
	return &TooLargeError{Limit: e.Limit, Declared: -1}
}

func (b *reader) Close() error {
	b.client.leave()
	return b.src.Close()
}

// client is who sends the body. A proxy reads a body in one goroutine while it answers in another, so the headers of the answer are not
// the reader's to change; the deadline of the connection is, as long as the connection has not gone on to another request.
type client struct {
	limiter *Limiter
	mu      sync.Mutex          // guards w, and is held while its deadline is set, so that leave is final
	w       http.ResponseWriter // nil over HTTP/2, and when the request is over
}

// hurry bounds how long the connection is read from now on.
func (c *client) hurry() {
	c.mu.Lock()
	var err error
	if c.w != nil {
		err = c.limiter.stopListeningSoon(c.w)
	}
	c.mu.Unlock()
	c.limiter.warn(err)
}

// leave says that the connection is no longer this request's.
func (c *client) leave() {
	c.mu.Lock()
	c.w = nil
	c.mu.Unlock()
}

// sent returns the body below all bounds, for discarding what is left of it.
func sent(body io.ReadCloser) io.ReadCloser {
	for {
		switch b := body.(type) {
		case *reader:
			body = b.src
		case *gunzipper:
			body = b.sent
		default:
			return body
		}
	}
}

// gunzipper decodes what was sent. It reads nothing before its first Read, since reading is what makes net/http send 100 Continue.
type gunzipper struct {
	sent *reader
	zr   *gzip.Reader
}

func (g *gunzipper) Read(p []byte) (n int, err error) {
	if g.zr == nil {
		g.zr, err = gzip.NewReader(g.sent)
		if err != nil {
			return 0, g.verdict(err)
		}
	}
	n, err = g.zr.Read(p)
	return n, g.verdict(err)
}

// verdict tells an encoding that is broken from a body that could not be read. To call a body malformed it has to be within the
// limit, so what is left of it is read first.
func (g *gunzipper) verdict(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	_, _ = io.Copy(io.Discard, g.sent) // its error is kept in g.sent
	if g.sent.err != io.EOF {
		return g.sent.err
	}
	return &MalformedError{Err: err, ended: true}
}

func (g *gunzipper) Close() error { return g.sent.Close() }
