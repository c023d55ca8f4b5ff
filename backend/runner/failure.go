package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// failure is an error that knows how it is answered.
type failure struct {
	status int
	code   string
	text   string
}

func (f *failure) Error() string { return f.text }

var (
	errSandboxGone    = &failure{http.StatusNotFound, wire.CodeSandboxGone, "the sandbox is being removed"}
	errNoSandbox      = &failure{http.StatusNotFound, wire.CodeNotFound, "no such sandbox"}
	errNoRoute        = &failure{http.StatusNotFound, wire.CodeNotFound, "no such route"}
	errNoProcess      = &failure{http.StatusNotFound, wire.CodeNotFound, "no such process"}
	errUnauthorized   = &failure{http.StatusUnauthorized, wire.CodeUnauthorized, "the bearer token is missing or wrong"}
	errMethod         = &failure{http.StatusMethodNotAllowed, wire.CodeMethod, "this route has other methods"}
	errStdinIsClosed  = &failure{http.StatusConflict, wire.CodeStdinClosed, "the process does not read its stdin any more"}
	errClientHasGone  = errors.New("runner: the client has gone")
	errBeyondTheEnd   = badRequest("an offset lies beyond what the process has written")
	errDataTwice      = badRequest("data and data_b64 exclude each other")
	errNothingToStdin = badRequest("neither data nor eof")
)

func badRequest(format string, args ...any) *failure {
	return &failure{http.StatusBadRequest, wire.CodeBadRequest, fmt.Sprintf(format, args...)}
}

func unknown(what string, err error) *failure {
	return &failure{http.StatusServiceUnavailable, wire.CodeUnknown, fmt.Sprintf("%s: %v", what, err)}
}

// refuse answers err, to which nothing was written yet.
func (c *call) refuse(err error) {
	if c.srv.json.Refuse(c.w, c.r, err) {
		c.srv.cfg.Logger.Debug("request body refused", zap.Error(err))
		return
	}
	f, ok := errors.AsType[*failure](err)
	switch {
	case ok:
	case errors.Is(err, errClientHasGone) || c.r.Context().Err() != nil:
		return // nobody reads it
	default:
		c.srv.cfg.Logger.Error("request failed", zap.String("method", c.r.Method), zap.String("path", c.r.URL.Path), zap.Error(err))
		f = &failure{http.StatusInternalServerError, wire.CodeInternal, err.Error()}
	}
	if f.status == http.StatusTooManyRequests {
		c.w.Header().Set("Retry-After", "1") // seconds; a process may end at any time
	}
	c.answer(f.status, wire.Error{Error: f.text, Code: f.code})
}

// answer writes one JSON value.
func (c *call) answer(status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic("runner: answer that is no JSON: " + err.Error()) // the answers are this module's own types
	}
	h := c.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	c.w.WriteHeader(status)
	_, _ = c.w.Write(append(body, '\n')) // a client that has gone needs no answer
}
