package refserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"

	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/quota"
	"github.com/keepwell-go/keepwell/registry"
	"github.com/keepwell-go/keepwell/registry/fresh"
)

// preparingRetry is when to ask again for what is being fetched, in seconds. The create then waits for the fetch.
const preparingRetry = 2

// imageRetry is when to ask again for an image that could not be fetched, in seconds: whoever asks has it fetched anew.
const imageRetry = 10

// failure is an error as a client gets to see it.
type failure struct {
	status int
	code   string
	text   string
	retry  int            // seconds for Retry-After; 0: none
	more   map[string]any // further fields of the answer
	cause  error          // for the log, where the client is told less
}

func (f *failure) Error() string {
	if f.cause != nil {
		return f.text + ": " + f.cause.Error()
	}
	return f.text
}

func (f *failure) Unwrap() error { return f.cause }

func badRequest(format string, args ...any) *failure {
	return &failure{status: http.StatusBadRequest, code: wire.CodeBadRequest, text: fmt.Sprintf(format, args...)}
}

func notFound(id string) *failure {
	return &failure{status: http.StatusNotFound, code: wire.CodeNotFound, text: "no sandbox " + strconv.Quote(id)}
}

func unavailable(err error) *failure {
	return &failure{status: http.StatusServiceUnavailable, code: wire.CodeUnavailable, text: "the backend could not be asked", retry: 1, cause: err}
}

// noImage tells why, as far as a client may know.
func noImage(image *backend.ImageError, err error) *failure {
	why := "; the server's log says why"
	if image.Reason != "" {
		why = ": " + image.Reason
	}
	return &failure{
		status: http.StatusServiceUnavailable, code: wire.CodeUnavailable, retry: imageRetry, cause: err,
		text: "image " + strconv.Quote(image.Image) + " cannot be had at the moment" + why,
	}
}

func preparing(id string, err error) *failure {
	return &failure{
		status: http.StatusServiceUnavailable, code: wire.CodePreparing, retry: preparingRetry, cause: err,
		text: "sandbox " + strconv.Quote(id) + " is not created yet: its image is being fetched, and a later create of it finds it",
	}
}

// inTransition says that id is held by somebody who does not destroy it, for what as far as that is known.
func (s *Server) inTransition(id string) *failure {
	f := &failure{
		status: http.StatusServiceUnavailable, code: wire.CodeCreating, retry: 1,
		text: "sandbox " + strconv.Quote(id) + " is in other hands for a moment",
	}
	switch s.moving.state(id) {
	case stateCreating:
		f.text = "sandbox " + strconv.Quote(id) + " is being created"
	case stateStopping:
		f.text = "sandbox " + strconv.Quote(id) + " is being stopped"
	}
	return f
}

func unauthorized() *failure {
	return &failure{status: http.StatusUnauthorized, code: wire.CodeUnauthorized, text: "the token is missing or not valid here"}
}

// unread says how an error of reading a body is answered: it is not what its head said. A body that was refused has its own answer, for
// which err is looked at first.
func unread(err error) error {
	return &failure{status: http.StatusBadRequest, code: wire.CodeBadRequest, text: "the body ends early, or is not in well-formed chunks", cause: err}
}

// failureOf says how an error about sandbox id is answered. What it does not know is the server's own fault.
func (s *Server) failureOf(id string, err error) *failure {
	var (
		f        *failure
		stopped  *stoppedError
		silent   *silentError
		held     *registry.HeldError
		exceeded *quota.ExceededError
		image    *backend.ImageError
	)
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &stopped):
		return &failure{
			status: http.StatusNotFound, code: wire.CodeStopped, text: stopped.Error() + "; a create of its id resumes it",
			more: map[string]any{"state": stateStopped},
		}
	case errors.As(err, &held) && !held.Destroying:
		return s.inTransition(id)
	case held != nil, errors.Is(err, registry.ErrNotFound):
		f := notFound(id)
		if held == nil && s.latch.draining() {
			f.text += " here, and a server that is being drained looks for none"
		}
		return f
	case errors.Is(err, backend.ErrPreparing):
		return preparing(id, err)
	case errors.As(err, &image):
		return noImage(image, err)
	case errors.As(err, &silent):
		f := unavailable(err)
		f.text = "sandbox " + strconv.Quote(id) + " runs, but its runner cannot be used"
		if spoken, ok := errors.AsType[*protocolError](err); ok {
			f.text += ": " + spoken.Error()
		}
		return f
	case errors.Is(err, registry.ErrUnavailable), errors.Is(err, fresh.ErrClosed), errors.Is(err, fresh.ErrBudget), errors.Is(err, backend.ErrUnavailable):
		return unavailable(err)
	case errors.As(err, &exceeded):
		return &failure{status: http.StatusTooManyRequests, code: wire.CodeQuotaExceeded, text: exceeded.Error(), retry: 5, more: map[string]any{
			"limit": exceeded.Limit, "key": exceeded.Key, "max": exceeded.Max, "used": exceeded.Used,
		}}
	case errors.Is(err, backend.ErrQuota):
		return &failure{status: http.StatusTooManyRequests, code: wire.CodeQuotaExceeded, text: err.Error(), retry: 5, more: map[string]any{"limit": "engine"}}
	case errors.Is(err, backend.ErrInvalid):
		return badRequest("%s", err.Error())
	default:
		return &failure{status: http.StatusInternalServerError, code: wire.CodeInternal, text: "internal error", cause: err}
	}
}

// fail answers err. Whoever seems to have left is cut off instead: one that only closed its half of the connection still reads,
// and would take the answer that net/http gives in place of none for a success.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, c *call, err error) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	if c.route != nil && s.limiterOf(c.route).Refuse(w, r, err) {
		return
	}
	f := s.failureOf(c.id, err)
	if f.status >= http.StatusInternalServerError {
		s.log.Warn("request failed", zap.String("method", r.Method), zap.String("sandbox", c.id), zap.Int("status", f.status),
			zap.String("code", f.code), zap.Error(f))
	}
	if f.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(f.retry))
	}
	if f.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	body := map[string]any{"error": plain(f.text), "code": f.code}
	maps.Copy(body, f.more)
	answer(w, f.status, body)
}

// answer writes v as JSON.
func answer(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic("refserver: answer cannot be encoded: " + err.Error())
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(b)+1))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // a client that has gone is no concern of ours
}
