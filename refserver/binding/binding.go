// Package binding keeps which process a public process id means, where the runner of the sandbox gave the process an id of its own.
//
// It prevents a kill that addresses nothing: a caller holds the id that the server assigned, an old runner knows only the one it
// minted, and a row that was swept away too early, or that answers for another sandbox, turns the first into no process or into a
// stranger's. What a Store keeps are ids and times; no command, environment or output ever gets there.
package binding

import (
	"context"
	"errors"
	"time"

	"github.com/keepwell-go/keepwell/backend"
)

// ErrConflict is returned by Bind when the public id means another process already. Nothing is changed then.
var ErrConflict = errors.New("binding: the id is bound to another process")

// Retention is how long the start of a process is kept after the process has ended or the start has expired.
const Retention = time.Hour

// Lifetime is after how long a start expires whose end nobody saw.
const Lifetime = 24 * time.Hour

// Start is a process that is about to be started. All fields are required.
type Start struct {
	Ref     backend.Ref // the incarnation of a sandbox that it runs in
	ID      string      // the public id
	At      time.Time
	Expires time.Time
}

// Store keeps starts, which expire, and bindings, which last as long as what they point to may run. Rows belong to one incarnation
// of a sandbox, and no call sees those of another; Prune and Refs alone are about all. Times are kept to the millisecond.
//
// The methods are safe for concurrent use, by several processes too where they share the Store. Each is one transaction: it happens
// or it does not, and so it can be repeated after an error. An error that is not ErrConflict means that the Store could not be
// asked, or could not tell; an error of the context is one of these. After Close every other method fails.
type Store interface {
	// Begin records a start. One that was recorded before is left as it is.
	Begin(ctx context.Context, s Start) error

	// Bind records which id the runner gave to the process; it may be the public id itself, and must not be empty. The same again
	// is accepted, another is ErrConflict; of two at once, one wins. It needs no recorded start.
	Bind(ctx context.Context, ref backend.Ref, id, bound string) error

	// End records when a process was seen to have ended. The first End counts; one of an unknown start does nothing.
	End(ctx context.Context, ref backend.Ref, id string, at time.Time) error

	// Bound returns what id is bound to, or "" if nothing is known. It asks neither whether the start has expired nor whether the
	// process has ended. It costs one read by an index.
	Bound(ctx context.Context, ref backend.Ref, id string) (string, error)

	// Public returns the public ids of those of the given runner's ids that are bound, by the runner's. Where several public ids
	// are bound to one, it is the first of them in the order of bytes. It costs one read, however many are asked for.
	Public(ctx context.Context, ref backend.Ref, bound []string) (map[string]string, error)

	// Prune removes the starts that ended or expired at cutoff or before, and returns how many. Bindings of an id to itself go as
	// soon as they have no start, since they say nothing. Bindings to an id of the runner's own stay until Forget.
	Prune(ctx context.Context, cutoff time.Time) (int, error)

	// Refs returns the incarnations that have rows, each with the time of its latest start, or the zero time where no start is left.
	Refs(ctx context.Context) (map[backend.Ref]time.Time, error)

	// Forget removes all rows of an incarnation that has ended.
	Forget(ctx context.Context, ref backend.Ref) error

	// Ping says whether the Store can be asked.
	Ping(ctx context.Context) error

	// Close ends the use of the Store. Calls under way come to their end. It may be called twice.
	Close() error
}
