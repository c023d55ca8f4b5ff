// Package backend is the contract with whatever runs sandboxes: an engine that fails, hangs, races and restarts.
//
// It prevents the faults that such engines invite: an error read as "nothing there", the loser of a race that cleans up the
// winner, a destroy that says done while the data lives on, and a call without an end. The suite in backendtest is its
// executable form: a Backend is right when backendtest.Run passes on it.
package backend

import (
	"context"
	"errors"
	"time"
)

// Errors that a Backend returns, wrapped with the id and the cause. Any other error means that the call's effect is unknown.
var (
	// ErrConflict is returned when the id belongs to somebody else or exists already. Nothing was changed.
	ErrConflict = errors.New("backend: conflict")
	// ErrUnavailable is returned when the engine could not be asked. Nothing was changed.
	ErrUnavailable = errors.New("backend: unavailable")
	// ErrQuota is returned when the engine itself refuses for want of room. Nothing was left behind.
	ErrQuota = errors.New("backend: engine quota")
	// ErrInvalid is returned when a retry of the same call cannot help. Nothing was left behind.
	ErrInvalid = errors.New("backend: invalid")
)

// Outcome is what a stop or destroy did. The zero Outcome is Unknown, and an error comes with Unknown only.
type Outcome uint8

// The outcomes. A stop, destroy or mark ends in one of them; Unknown comes with the error that says why.
const (
	Unknown Outcome = iota // it could not be told whether the instance is still there
	Stopped                // this call ended it
	Gone                   // it was not there (for Stop and Mark: not running), or another instance has taken its id
	Marked                 // by Mark only: the pin is kept and the lifetime has begun anew
)

// String returns the word that the wire uses: "unknown", "stopped" or "gone"; "marked" never reaches it.
func (o Outcome) String() string {
	switch o {
	case Stopped:
		return "stopped"
	case Gone:
		return "gone"
	case Marked:
		return "marked"
	default:
		return "unknown"
	}
}

// Ref names one incarnation of a sandbox id. An empty ID or Instance is ErrInvalid, never "any".
type Ref struct{ ID, Instance string }

// Spec says what to create. The caller mints Ref.Instance, so that a create whose effect is unknown can be undone.
type Spec struct {
	Ref
	Tenant   string
	Image    string // ignored by backends without images
	Profile  string // "" is ProfileDefault
	Env      map[string]string
	MemoryMB int64         // 0: the profile's limit
	CPUs     float64       // 0: the profile's limit
	PIDs     int64         // 0: the profile's limit
	TTL      time.Duration // 0: never expires
	Idle     time.Duration // idle timeout; 0: never
	Pinned   bool
}

// Endpoint is where the runner of a sandbox listens.
type Endpoint struct {
	Network string // "unix" or "tcp"
	Address string // socket path or host:port
	Token   string // what the runner expects as bearer token; "" where the socket's mode guards it
}

// Sandbox is what the backend has. It carries the Spec back, as the labels of an engine do; Env is not carried.
// A stopped sandbox carries the Ref of the instance that ran last, and its Tenant.
type Sandbox struct {
	Spec
	Created  time.Time // of this instance: a resume is a new one
	Renewed  time.Time // when the lifetime that TTL counts began: Created, or the last Mark
	Running  bool
	Resumed  bool // by Create only: the workspace existed already
	Endpoint Endpoint
}

// Snapshot is one answer to "what do you have?".
type Snapshot struct {
	Sandboxes []Sandbox
	Complete  bool // false: absence proves nothing but for the ids that were asked for by name
}

// Backend is implemented by whatever runs sandboxes. It is safe for concurrent use. A call returns when its context ends, and
// changes nothing if that has ended already.
type Backend interface {
	// Create makes and starts a sandbox, or resumes a stopped one of the same id and tenant under the new instance.
	// An id that runs, is being created, or is another tenant's is ErrConflict, whatever the instance. It returns when the
	// runner listens; what it returns is what List shows from then on.
	Create(ctx context.Context, s Spec) (Sandbox, error)
	// List returns all sandboxes of this owner, running and stopped, or an error; with ids it may answer for these alone.
	List(ctx context.Context, ids ...string) (Snapshot, error)
	// Stop releases the compute of one instance and keeps its workspace.
	Stop(ctx context.Context, r Ref) (Outcome, error)
	// Destroy ends one instance, running or stopped, and deletes its workspace.
	Destroy(ctx context.Context, r Ref) (Outcome, error)
	// Ping asks the engine whether it answers.
	Ping(ctx context.Context) error
}

// Marker is implemented by backends that keep a pin and a lifetime where a restart and other replicas find them.
type Marker interface {
	// Mark sets the pin of a running instance and starts its lifetime anew; it answers Marked, Gone, or Unknown with an error.
	Mark(ctx context.Context, r Ref, pinned bool) (Outcome, error)
}
