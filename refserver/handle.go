package refserver

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/bodylimit"
)

// strangerTime is how long a client that has shown no token may take to send a body.
const strangerTime = time.Second

// handle answers one request.
func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	var c call
	defer func() {
		if p := recover(); p != nil {
			s.panicked(w, r, &c, p)
		}
	}()
	if err := s.serve(w, r, &c); err != nil {
		s.fail(w, r, &c, err)
	}
}

// serve asks in this order: is there such a route, who asks, is the body within the limit, is it still served, does it make sense.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, c *call) error {
	found, allowed := match(s.routes, r)
	if found.route == nil || found.route.access == forAll || !s.admits(r, &found) {
		hurry(w, r)
	}
	switch {
	case len(allowed) > 0:
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		return &failure{status: http.StatusMethodNotAllowed, code: wire.CodeMethod, text: fmt.Sprintf("%s is not a method of this path", r.Method)}
	case found.route == nil:
		return &failure{status: http.StatusNotFound, code: wire.CodeNotFound, text: "no such route"}
	}
	*c = found
	if !s.admits(r, c) {
		return unauthorized()
	}
	if limit := s.limiterOf(c.route).Max; r.ContentLength > limit {
		return &bodylimit.TooLargeError{Limit: limit, Declared: r.ContentLength}
	}
	if err := c.check(r); err != nil {
		return err
	}
	refused := c.route.creates && s.latch.draining()
	if !c.route.body || refused {
		if err := s.discard(w, r); err != nil {
			return err
		}
	}
	if refused {
		return refusesCreates()
	}
	return c.route.serve(s, w, r, c)
}

// hurry bounds how long somebody who has shown no token may take over a body that nobody wants: net/http would wait for it.
func hurry(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(strangerTime)) // a writer without one has no connection to hold
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
}

// admits says whether the token of r opens the route, and for which instance.
func (s *Server) admits(r *http.Request, c *call) (ok bool) {
	if c.route.access == forAll || s.auth.isAdmin(r) {
		return true
	}
	if c.route.access == forSandbox {
		c.instance, ok = s.auth.instanceOf(r, c.id)
	}
	return ok
}

func (s *Server) limiterOf(rt *route) *bodylimit.Limiter {
	if rt.file {
		return s.files
	}
	return s.json
}

// check refuses ids that cannot be any sandbox's or process's, and a query that would be read in part, before they reach a backend or
// a runner.
func (c *call) check(r *http.Request) error {
	if strings.Contains(c.route.path, "{id}") {
		if err := backend.CheckID(c.id); err != nil {
			return err
		}
	}
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
		return badRequest("query: %v", err)
	}
	if c.process == "" {
		return nil
	}
	err := wire.CheckProcessID(c.process)
	switch {
	case errors.Is(err, wire.ErrPID):
		return &failure{status: http.StatusBadRequest, code: wire.CodePIDNotAccepted, text: err.Error()}
	case err != nil:
		return badRequest("%v", err)
	}
	return nil
}

// discard reads a body that nobody asked for, within the limit.
func (s *Server) discard(w http.ResponseWriter, r *http.Request) error {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	body, err := s.json.Body(w, r)
	if err != nil {
		return err
	}
	if _, err = io.Copy(io.Discard, body); err != nil {
		return unread(err)
	}
	return nil
}

// panicked ends a request whose handling panicked, and no other.
func (s *Server) panicked(w http.ResponseWriter, r *http.Request, c *call, p any) {
	if p == http.ErrAbortHandler {
		panic(p)
	}
	s.log.Error("request panicked", zap.String("method", r.Method), zap.String("sandbox", c.id), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
	s.fail(w, r, c, fmt.Errorf("panic: %v", p))
}
