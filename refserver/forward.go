package refserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// forward passes a request on to the runner of its sandbox, and the answer back as it comes.
func (s *Server) forward(w http.ResponseWriter, r *http.Request, c *call) error {
	up, err := s.upload(w, r, c)
	if err != nil {
		return err
	}
	e, end, err := s.use(r.Context(), c)
	if err != nil {
		return err
	}
	defer end()
	if e.Value.legacy() {
		err = s.translate(w, r, c, e, up)
	} else {
		err = s.passOn(w, r, c, e, up)
	}
	if f, ok := errors.AsType[*failure](err); ok && c.route.starts && leavesOpen(f) {
		f.text += "; whether it has started the process is not known"
	}
	return err
}

// leavesOpen says whether f, of a runner that did not answer, does not tell what became of the request.
func leavesOpen(f *failure) bool {
	return f.code == wire.CodeRunnerLost || f.code == wire.CodeUnavailable || f.code == wire.CodeCreating
}

// passOn passes a request on as it is, and the answer back.
func (s *Server) passOn(w http.ResponseWriter, r *http.Request, c *call, e entry, up *upload) error {
	resp, err := s.reach(r.Context(), s.onward(r, c, e.Value, up), e, up)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	s.passBody(w, r, c, resp, up)
	return nil
}

// reach returns what the runner of e answers to out. ctx is for finding out what it means that it does not.
func (s *Server) reach(ctx context.Context, out *http.Request, e entry, up *upload) (*http.Response, error) {
	resp, err := s.runners.transport.RoundTrip(out)
	if err != nil {
		if bad := up.fault(); bad != nil {
			return nil, bad
		}
		return nil, s.lost(ctx, e, err)
	}
	if err := s.disowned(ctx, e.Value, resp.StatusCode); err != nil {
		_ = resp.Body.Close()
		return nil, s.lost(ctx, e, err)
	}
	return resp, nil
}

// passBody answers with resp, and says whether it told of the end of a process.
func (s *Server) passBody(w http.ResponseWriter, r *http.Request, c *call, resp *http.Response, up *upload) (exited bool) {
	passHead(w, r, resp, up)
	if isStream(resp) {
		w.Header().Del("Content-Length") // the relay may have to add a last event
		w.WriteHeader(resp.StatusCode)
		return s.relay(w, r, c, resp.Body)
	}
	w.WriteHeader(resp.StatusCode)
	if _, err := io.Copy(w, resp.Body); err != nil {
		panic(http.ErrAbortHandler) // the client must not take a part for the whole
	}
	return false
}

// passHead prepares the head of an answer with resp.
func passHead(w http.ResponseWriter, r *http.Request, resp *http.Response, up *upload) {
	passHeaders(w.Header(), resp.Header)
	if !up.ended() && r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close") // or net/http would first wait for the rest of the body
	}
}

// disowned returns an error if the runner that answered with status does not serve this sandbox, or not us. What it has not
// found may be a process or a file as well, so it is asked.
func (s *Server) disowned(ctx context.Context, b *box, status int) error {
	switch status {
	case http.StatusUnauthorized:
		return errors.New("the runner does not accept the token of its endpoint")
	case http.StatusNotFound:
		_, err := s.runners.activity(ctx, b.Sandbox)
		return err
	}
	return nil
}

// onward returns r as the runner gets it: the same path and query, and few headers.
func (s *Server) onward(r *http.Request, c *call, b *box, up *upload) *http.Request {
	out := s.runners.request(r.Context(), b.Endpoint, r.Method, r.URL.Path, r.URL.RawQuery)
	if kind := r.Header["Content-Type"]; kind != nil {
		out.Header["Content-Type"] = kind
	}
	if c.route.starts {
		out.Header.Set(wire.ProcessIDHeader, newProcessID())
	}
	if up != nil {
		out.Body, out.ContentLength = up, r.ContentLength
	}
	return out
}

// passHeaders copies what a client may learn of the runner's answer. Values are shared, not copied.
func passHeaders(to, from http.Header) {
	for _, name := range [...]string{"Content-Type", "Content-Length", "Cache-Control", "Retry-After", wire.NextCursor} {
		if v := from[name]; v != nil {
			to[name] = v
		}
	}
	to["X-Content-Type-Options"] = []string{"nosniff"}
}

// upload is a request body on its way to a runner. It keeps what its last read said, whatever the transport makes of it.
type upload struct {
	body io.ReadCloser
	last atomic.Pointer[error]
}

// upload returns the bounded body of r; nil where there is none.
func (s *Server) upload(w http.ResponseWriter, r *http.Request, c *call) (*upload, error) {
	if !c.route.body || r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	body, err := s.limiterOf(c.route).Body(w, r)
	if err != nil {
		return nil, err
	}
	return &upload{body: body}, nil
}

func (u *upload) Read(p []byte) (int, error) {
	n, err := u.body.Read(p)
	if err != nil {
		u.last.Store(&err)
	}
	return n, err
}

// Close leaves the body open: what is left of it is read, or not, by whoever answers the client.
func (u *upload) Close() error { return nil }

func (u *upload) err() error {
	if u == nil {
		return io.EOF
	}
	if err := u.last.Load(); err != nil {
		return *err
	}
	return nil
}

// all reads the whole body.
func (u *upload) all() ([]byte, error) {
	if u == nil {
		return nil, nil
	}
	b, err := io.ReadAll(u)
	if err != nil {
		err = unread(err)
	}
	return b, err
}

// again is the upload whose whole body was read, for another time.
func (u *upload) again(body []byte) *upload {
	if u == nil {
		return nil
	}
	return &upload{body: io.NopCloser(bytes.NewReader(body))}
}

// ended says whether the body was read to its end.
func (u *upload) ended() bool { return u.err() == io.EOF }

// fault returns how a body is answered that was not read to its end, since it is not accepted or not whole.
func (u *upload) fault() error {
	if err := u.err(); err != nil && err != io.EOF {
		return unread(err)
	}
	return nil
}
