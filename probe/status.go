package probe

import "time"

// State is what several measurements together say of a dependency. The zero State is Unknown.
type State uint8

// The states of a Probe. From Unknown it goes Up or Down, and never back.
const (
	Unknown State = iota
	Up
	Down
)

// String returns the state in lower case.
func (s State) String() string {
	switch s {
	case Up:
		return "up"
	case Down:
		return "down"
	default:
		return "unknown"
	}
}

// Status is the outcome of a check, and what the Probe then thought of the dependency. Before the first check has ended it is zero.
type Status struct {
	State State
	Err   error         // of the measurement; a single failure need not change the state
	At    time.Time     // when it ended
	Took  time.Duration // up to its end; for ErrBudget, what was waited; 0 if the clock was set back
}

// Result is the outcome of a check together with what the check returned. The zero Result is what Peek gives before the first.
type Result[T any] struct {
	Status
	Value T
}

// Stats has the counters of a Probe, and what its check is at.
type Stats struct {
	Checks uint64 // started
	Failed uint64 // measurements with an error, ErrBudget included
	Joined uint64 // calls of Get answered by a measurement that another call had begun
	Cached uint64 // calls of Get answered by the result that was kept

	Running bool // a check is outstanding
	Wedged  bool // it is, though its context has ended: its budget is over, or the probe was closed
}
