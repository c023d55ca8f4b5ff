// Package backend defines what a program may expect of an engine that runs sandboxes, although engines fail, hang, race and restart.
//
// It prevents the faults that come of expecting too little or too much: reading an error as "nothing there", removing what another
// create of the same id has made, reporting a destroy that left the files behind, and waiting for ever. Package backendtest has a
// test for each promise: a Backend is right when backendtest.Run passes on it.
package backend

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The errors after which the effect of a call is known: there is none. A Backend wraps them with the id and the cause. After any
// other error it is unknown what the call did.
var (
	// ErrConflict means that the id is taken: by another tenant, or by a sandbox that runs, is in transition, or cannot be looked at.
	// What has it was left alone.
	ErrConflict = errors.New("backend: conflict")
	// ErrUnavailable means that the engine cannot be reached or is not ready for the call, and is as it was. A retry may help.
	ErrUnavailable = errors.New("backend: unavailable")
	// ErrPreparing is the ErrUnavailable of a create that lacks something which is being fetched, such as an image. The fetch goes
	// on for whoever asks next, so a retry of the same helps.
	ErrPreparing = fmt.Errorf("%w: something is being fetched", ErrUnavailable)
	// ErrQuota means that the engine has no room, by a limit of its own. What the call had made is removed again.
	ErrQuota = errors.New("backend: engine quota")
	// ErrInvalid means that the call can never succeed as it is, so do not retry it. What it had made is removed again.
	ErrInvalid = errors.New("backend: invalid")
)

// ImageError is the ErrUnavailable of a create whose image cannot be had just now. An image that there never will be is ErrInvalid.
type ImageError struct {
	Image  string
	Reason string // that a client may read, so without addresses and secrets; "": nothing is known that is fit for that
	Cause  error
}

// Error has all of the cause, and so is for the log.
func (e *ImageError) Error() string {
	return fmt.Sprintf("image %q: %v: %v", e.Image, ErrUnavailable, e.Cause)
}

// Unwrap makes it ErrUnavailable, and the cause too.
func (e *ImageError) Unwrap() []error { return []error{ErrUnavailable, e.Cause} }

// Outcome tells how a stop, destroy or mark went. It is Unknown if and only if there is an error, and Unknown is the zero value.
type Outcome uint8

// The outcomes of Stop, Destroy and Mark. The error that comes with Unknown says why.
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

// Ref says which sandbox is meant, and which of those that have had its id one after the other. Both fields are needed: an empty one is
// ErrInvalid and does not match everything.
type Ref struct{ ID, Instance string }

// Spec describes a sandbox to Create. The caller chooses the instance, a new one for each create, and so can stop or destroy
// what was made even if Create has failed without saying whether it made anything.
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

// Sandbox describes a sandbox as Create and List report it. Its Spec is what the engine has kept of the one it was created with,
// which is all but Env. Of a stopped one at least Tenant and Ref are known; its Instance is that of the last run.
type Sandbox struct {
	Spec
	Created  time.Time // of this instance: a resume is a new one
	Renewed  time.Time // when the lifetime that TTL counts began: Created, or the last Mark
	Running  bool
	Resumed  bool // by Create only: the workspace existed already
	Endpoint Endpoint
}

// Snapshot is what a List found.
type Snapshot struct {
	Sandboxes []Sandbox
	Complete  bool // false: absence proves nothing but for the ids that were asked for by name
}

// Backend is an engine, or a client of one, that can create, list, stop and destroy sandboxes for one owner. Implementations are safe
// for concurrent use. The end of its context makes a call return; a call that begins after it does nothing.
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

// Watcher is implemented by backends whose engine tells of changes by itself.
type Watcher interface {
	// Watch calls changed when something of this owner may have begun or ended, whoever has done it, and returns when ctx has ended.
	// A call is a reason to list and no more: it may come late, in vain, for several changes at once, or never.
	// It is not called by two goroutines at once, and should return at once. A Backend that was Bound has no Watch.
	Watch(ctx context.Context, changed func())
}
