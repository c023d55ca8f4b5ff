package local

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// protocol is the version of the interface between a Backend and a host runner. It changes when either could misread the other;
// pingPath, downPath and the first two fields of info never change, so that any build can end any host.
const protocol = 1

const (
	pingPath      = "/host/v1/ping"
	downPath      = "/host/v1/down"
	sandboxesPath = "/host/v1/sandboxes"
	maxMessage    = 8 << 20 // bytes of a request to the host: the bound that all JSON has here
)

// info is what a host runner says of itself.
type info struct {
	Protocol    int      `json:"protocol"`
	Version     string   `json:"version"`
	Runner      int      `json:"runner_protocol"`
	PID         int      `json:"pid"`
	Confinement []string `json:"confinement"`
	Missing     []string `json:"missing"` // what RequireConfinement asks for and this machine does not give
}

// meta is the label of a sandbox: what is kept in meta.json, and what a list answers. Env is not part of it: a resume brings
// its own, so no secret needs to lie on the disk.
type meta struct {
	ID       string        `json:"id"`
	Instance string        `json:"instance"`
	Tenant   string        `json:"tenant"`
	Image    string        `json:"image,omitempty"`
	Profile  string        `json:"profile"`
	MemoryMB int64         `json:"memory_mb"`
	CPUs     float64       `json:"cpus"`
	PIDs     int64         `json:"pids"`
	TTL      time.Duration `json:"ttl_ns"`
	Idle     time.Duration `json:"idle_ns"`
	Pinned   bool          `json:"pinned"`
	Created  time.Time     `json:"created"`
	Renewed  time.Time     `json:"renewed"`
	UID      uint32        `json:"uid,omitempty"` // 0: the host's own
}

// createRequest asks for a sandbox. Env has one NAME=value each, as bytes: JSON would change what is not UTF-8.
type createRequest struct {
	meta
	Env [][]byte `json:"env"`
}

func createOf(s backend.Spec) createRequest {
	req := createRequest{meta: metaOf(s)}
	for name, value := range s.Env {
		req.Env = append(req.Env, []byte(name+"="+value))
	}
	return req
}

func (r createRequest) spec() backend.Spec {
	s := r.meta.spec()
	s.Env = make(map[string]string, len(r.Env))
	for _, kv := range r.Env {
		name, value, _ := strings.Cut(string(kv), "=")
		s.Env[name] = value
	}
	return s
}

type sandbox struct {
	meta
	Running bool `json:"running"`
	Resumed bool `json:"resumed,omitempty"`
}

type snapshot struct {
	Sandboxes []sandbox `json:"sandboxes"`
	Complete  bool      `json:"complete"`
}

// refRequest is the body of a stop, destroy or mark; Pinned belongs to the last.
type refRequest struct {
	Instance string `json:"instance"`
	Pinned   bool   `json:"pinned,omitempty"`
}

type outcomeAnswer struct {
	Outcome string `json:"outcome"`
}

type downAnswer struct {
	Stopped int `json:"stopped"`
}

func metaOf(s backend.Spec) meta {
	return meta{
		ID: s.ID, Instance: s.Instance, Tenant: s.Tenant, Image: s.Image, Profile: s.Profile,
		MemoryMB: s.MemoryMB, CPUs: s.CPUs, PIDs: s.PIDs, TTL: s.TTL, Idle: s.Idle, Pinned: s.Pinned,
	}
}

func (m meta) spec() backend.Spec {
	return backend.Spec{
		Ref: backend.Ref{ID: m.ID, Instance: m.Instance}, Tenant: m.Tenant, Image: m.Image, Profile: m.Profile,
		MemoryMB: m.MemoryMB, CPUs: m.CPUs, PIDs: m.PIDs, TTL: m.TTL, Idle: m.Idle, Pinned: m.Pinned,
	}
}

func (s sandbox) sandbox(e backend.Endpoint) backend.Sandbox {
	out := backend.Sandbox{Spec: s.spec(), Created: s.Created, Renewed: s.Renewed, Running: s.Running, Resumed: s.Resumed}
	if s.Running {
		out.Endpoint = e
	}
	return out
}

// outcomeOf reads an outcome's word.
func outcomeOf(word string) (backend.Outcome, error) {
	for _, o := range []backend.Outcome{backend.Stopped, backend.Gone, backend.Marked} {
		if o.String() == word {
			return o, nil
		}
	}
	return backend.Unknown, fmt.Errorf("local: the host runner answered with the outcome %q", word)
}

// kinds are the errors that keep their meaning on the way from the host to the caller.
func kinds() []kind {
	return []kind{
		{backend.ErrConflict, wire.CodeDuplicate, http.StatusConflict},
		{backend.ErrInvalid, wire.CodeBadRequest, http.StatusBadRequest},
		{backend.ErrQuota, wire.CodeQuotaExceeded, http.StatusTooManyRequests},
		{backend.ErrUnavailable, wire.CodeUnavailable, http.StatusServiceUnavailable},
	}
}

type kind struct {
	err    error
	code   string
	status int
}

// kindOf returns how err travels; what has no kind means that the effect is unknown.
func kindOf(err error) kind {
	for _, k := range kinds() {
		if errors.Is(err, k.err) {
			return k
		}
	}
	return kind{nil, wire.CodeUnknown, http.StatusInternalServerError}
}

// hostError is an error of the host as the caller sees it.
type hostError struct {
	text string
	kind error // nil: the effect is unknown
}

func (e *hostError) Error() string { return "local: " + e.text }
func (e *hostError) Unwrap() error { return e.kind }

func errorOf(w wire.Error) error {
	for _, k := range kinds() {
		if k.code == w.Code {
			return &hostError{w.Error, k.err}
		}
	}
	return &hostError{text: w.Error}
}
