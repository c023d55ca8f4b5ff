package backendtest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/keepwell-go/keepwell/backend"
)

// rivals is how many calls race each other.
const rivals = 16

func races() []Case {
	return []Case{
		{
			"ConflictLeavesTheWinnerAlone", "R23, R26", "whoever creates an id twice kills the first one",
			nil, conflictLeavesWinner,
		},
		{
			"ConflictLeavesTheWinnersWorkspaceAlone", "R24", "the loser of a race cleans up the winner's files",
			files(), conflictLeavesFiles,
		},
		{
			"StoppedSandboxOfAnotherTenantIsAConflict", "R26", "one tenant resumes another's files",
			files("Resume"), otherTenant,
		},
		{
			"SixteenCreatesHaveOneWinner", "R23-R26", "two callers share a sandbox that each thinks its own, or nobody gets one",
			nil, manyCreates,
		},
		{
			"SixteenResumesHaveOneWinner", "R25", "the loser of a resume deletes the old workspace",
			files("Resume"), manyResumes,
		},
		{
			"SixteenDestroysAreAllTrue", "R83", "one of two destroys says that it failed, or that nothing was there to be ended",
			nil, manyDestroys,
		},
		{
			"DestroyOfTheLastNeverMeetsTheNext", "R85", "a late destroy takes what was created meanwhile",
			nil, destroyMeetsCreate,
		},
	}
}

func conflictLeavesWinner(e *env) {
	b, s := e.open(), e.spec("a")
	made := e.create(b, s)
	e.refused(b, s, backend.ErrConflict) // the very same spec, too: a create is not a lookup
	e.refused(e.open(), again(s), backend.ErrConflict)
	got := e.running(b, s.Ref)
	if got.Endpoint != made.Endpoint || !got.Created.Equal(made.Created) {
		e.failf("after a conflict the winner is created at %v, was %v", got.Created, made.Created)
	}
}

func conflictLeavesFiles(e *env) {
	b, s := e.open(), e.spec("a")
	made := e.create(b, s)
	e.write(b, made, "the winner's")
	e.refused(e.open(), again(s), backend.ErrConflict)
	e.holds(b, made, "the winner's")
}

func otherTenant(e *env) {
	b, s := e.open(), e.spec("a")
	e.write(b, e.create(b, s), "of tenant a")
	e.stop(b, s.Ref, backend.Stopped)
	theirs := again(s)
	theirs.Tenant = "tenant-b"
	e.refused(b, theirs, backend.ErrConflict)
	e.stopped(b, s.Ref)
	e.holds(b, e.create(b, again(s)), "of tenant a")
}

func manyCreates(e *env) {
	for round := range 4 {
		s := e.spec(fmt.Sprintf("race-%d", round))
		if winner := e.race(s); winner.Resumed {
			e.failf("the winner of a new id says that it resumed a workspace")
		}
	}
}

// race creates s from many replicas at once. Exactly one must win, and be what is listed.
func (e *env) race(s backend.Spec) backend.Sandbox {
	var won atomic.Int32
	var winner atomic.Pointer[backend.Sandbox]
	e.together(rivals, func(int) {
		made, err := e.open().Create(e.ctx, again(s))
		switch {
		case err == nil:
			won.Add(1)
			winner.Store(&made)
		case !errors.Is(err, backend.ErrConflict):
			e.failf("a loser got error %v, want one that is %q", err, backend.ErrConflict)
		}
	})
	if n := won.Load(); n != 1 {
		e.failf("%d of %d creates of %q won, want 1", n, rivals, s.ID)
	}
	e.running(e.open(), winner.Load().Ref)
	return *winner.Load()
}

func manyResumes(e *env) {
	b, s := e.open(), e.spec("a")
	e.write(b, e.create(b, s), "kept")
	e.stop(b, s.Ref, backend.Stopped)
	winner := e.race(s)
	if !winner.Resumed {
		e.failf("the winner of a stopped id does not say that it resumed a workspace")
	}
	e.holds(b, winner, "kept")
}

func manyDestroys(e *env) {
	b, s := e.open(), e.spec("a")
	e.create(b, s)
	var stopped atomic.Int32
	e.together(rivals, func(int) {
		out, err := e.open().Destroy(e.ctx, s.Ref)
		e.outcome("destroy among others", out, err, []backend.Outcome{backend.Stopped, backend.Gone})
		if out == backend.Stopped {
			stopped.Add(1)
		}
	})
	if stopped.Load() == 0 {
		e.failf("of %d destroys of a running sandbox none says that it stopped it", rivals)
	}
	e.absent(b, s.ID)
}

// destroyMeetsCreate lets destroys of an old instance race with the create of the next one.
func destroyMeetsCreate(e *env) {
	b, s := e.open(), e.spec("a")
	e.create(b, s)
	for range rivals {
		old, next := s.Ref, again(s)
		var created bool
		e.together(3, func(i int) {
			if i > 0 {
				out, err := e.open().Destroy(e.ctx, old)
				e.outcome("destroy of the last instance", out, err, []backend.Outcome{backend.Stopped, backend.Gone})
				return
			}
			for !created {
				_, err := b.Create(e.ctx, next)
				created = err == nil
				if err != nil && !errors.Is(err, backend.ErrConflict) {
					e.failf("create of the next instance: %w", err)
				}
				e.pause(time.Millisecond)
			}
		})
		e.running(b, next.Ref)
		s = next
	}
}
