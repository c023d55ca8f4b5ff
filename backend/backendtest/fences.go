package backendtest

import (
	"errors"

	"github.com/keepwell-go/keepwell/backend"
)

func fences() []Case {
	return []Case{
		{
			"StaleRefsAreGoneAndTheReplacementLives", "R85", "a verdict on the last instance ends this one",
			nil, staleRefs,
		},
		{
			"StaleRefsOfAResumedSandboxAreGone", "R85", "a late stop ends what was just resumed",
			files("Resume"), staleAfterResume,
		},
		{
			"StaleDestroyKeepsAStoppedWorkspace", "R85", "a late destroy deletes what a newer instance wrote",
			files("Resume"), staleAfterStop,
		},
	}
}

func staleRefs(e *env) {
	b, s := e.open(), e.spec("a")
	e.create(b, s)
	e.destroy(b, s.Ref, backend.Stopped)
	next := again(s)
	e.create(b, next)
	e.stop(b, s.Ref, backend.Gone)
	e.destroy(b, s.Ref, backend.Gone)
	e.running(b, next.Ref)
}

func staleAfterResume(e *env) {
	b, s := e.open(), e.spec("a")
	e.write(b, e.create(b, s), "kept")
	e.stop(b, s.Ref, backend.Stopped)
	next := again(s)
	e.create(b, next)
	e.stop(b, s.Ref, backend.Gone)
	e.destroy(b, s.Ref, backend.Gone)
	e.holds(b, e.running(b, next.Ref), "kept")
}

func staleAfterStop(e *env) {
	b, s := e.open(), e.spec("a")
	e.create(b, s)
	e.stop(b, s.Ref, backend.Stopped)
	next := again(s)
	e.write(b, e.create(b, next), "of the newer instance")
	e.stop(b, next.Ref, backend.Stopped)
	e.destroy(b, s.Ref, backend.Gone)
	e.stopped(b, next.Ref)
	e.holds(b, e.create(b, again(s)), "of the newer instance")
}

// invalid wants a refusal that did nothing.
func (e *env) invalid(call string, out backend.Outcome, err error) {
	if out != backend.Unknown || !errors.Is(err, backend.ErrInvalid) {
		e.failf("%s: outcome %s, error %v; want unknown and one that is %q", call, out, err, backend.ErrInvalid)
	}
}
