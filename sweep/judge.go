package sweep

import (
	"fmt"
	"time"
)

// Verdict is the decision over an object. The zero Verdict is Keep. None of them is to destroy data: a sweep does not do that.
type Verdict uint8

// The verdicts.
const (
	Keep        Verdict = iota
	StopIdle            // stop it: unused for longer than it may be
	StopExpired         // stop it: it has lived longer than it may
	Drop                // forget it: there is nothing left to stop
)

// String returns the verdict in words.
func (v Verdict) String() string {
	switch v {
	case Keep:
		return "keep"
	case StopIdle:
		return "stop, idle"
	case StopExpired:
		return "stop, expired"
	case Drop:
		return "drop"
	}
	return fmt.Sprintf("verdict %d", uint8(v))
}

// stops reports whether v is one of the verdicts that Plan paces.
func (v Verdict) stops() bool { return v == StopIdle || v == StopExpired }

// Facts is what is known about an object at the moment of the verdict. There are durations in it and no points in time, so that
// each may be measured by the clock nearest to it. The zero Facts says that nothing could be learned; Judge keeps such an object.
type Facts struct {
	Pinned bool // exempt from all verdicts
	Held   bool // being created or torn down here
	Busy   bool // something runs in it, or a request is using it

	Reachable bool // its runner answered: Busy and Idle are known
	Gone      bool // the backend says that it does not exist; false also if it could not tell

	Age   time.Duration // since it was created, or unpinned
	Grace time.Duration // an object younger than this is kept; 0: none is
	TTL   time.Duration // how old it may become; 0 or less: it never expires

	Idle        time.Duration // since its last activity, by its runner's clock
	IdleTimeout time.Duration // how long it may be idle; 0 or less: for ever
}

// Judge decides what becomes of one object and says why, in words for people. It depends on f alone. Of these the first that holds
// counts:
//
//  1. It is Pinned, Held, Busy, or Age is less than Grace: keep.
//  2. It has a TTL and Age is more: stop, even if its runner could not be asked.
//  3. It is Reachable: stop if it has an IdleTimeout and Idle is more, else keep.
//  4. It is Gone: drop. The silence of a runner would not be enough, so the backend has been asked.
//  5. Nothing of this: keep. That one could not look is no reason to stop anything.
func Judge(f Facts) (Verdict, string) {
	switch {
	case f.Pinned:
		return Keep, "pinned"
	case f.Held:
		return Keep, "in transition"
	case f.Busy:
		return Keep, "busy"
	case f.Age < f.Grace:
		return Keep, fmt.Sprintf("young: age %v is less than the grace of %v", f.Age, f.Grace)
	case f.TTL > 0 && f.Age > f.TTL:
		return StopExpired, fmt.Sprintf("expired: age %v is over the lifetime of %v", f.Age, f.TTL)
	case f.Reachable && f.IdleTimeout > 0 && f.Idle > f.IdleTimeout:
		return StopIdle, fmt.Sprintf("idle: for %v, over the timeout of %v", f.Idle, f.IdleTimeout)
	case f.Reachable:
		return Keep, "in use"
	case f.Gone:
		return Drop, "gone: its runner does not answer and the backend has no such object"
	}
	return Keep, "unknown: its runner does not answer, so that only its lifetime counts"
}
