package backendtest

import (
	"time"

	"github.com/keepwell-go/keepwell/backend"
)

func marks() []Case {
	return []Case{
		{
			"PinIsSeenByEveryReplica", "R105", "a pin holds only where it was set, and the next sweep elsewhere ends the sandbox",
			[]string{"Marker"},
			pinIsSeen,
		},
		{
			"PinSurvivesARestart", "R105", "a restart forgets which sandboxes must stay",
			[]string{"Marker", "Restart"},
			pinSurvives,
		},
		{
			"MarkStartsTheLifetimeAnew", "R42, R105", "the sweep after an unpin ends what was just in use",
			[]string{"Marker"},
			markRenews,
		},
		{
			"StaleMarksAreGone", "R85", "a pin meant for the last instance keeps this one for ever",
			[]string{"Marker"},
			staleMarks,
		},
	}
}

// mark marks an instance of an owner's; the outcome must be want.
func (e *env) mark(b backend.Backend, r backend.Ref, pinned bool, want backend.Outcome) {
	m, ok := b.(backend.Marker)
	if !ok {
		e.failf("%T has no Mark, and Cannot has no reason for it under Marker", b)
	}
	out, err := m.Mark(e.ctx, r, pinned)
	e.outcome("mark of "+r.ID, out, err, []backend.Outcome{want})
}

func (e *env) pinned(b backend.Backend, r backend.Ref, want bool) {
	if got := e.running(b, r); got.Pinned != want {
		e.failf("%q is listed with pinned %v, want %v", r.ID, got.Pinned, want)
	}
}

func pinIsSeen(e *env) {
	a, b, s := e.open(), e.open(), e.spec("a")
	e.create(a, s)
	e.mark(a, s.Ref, true, backend.Marked)
	e.pinned(b, s.Ref, true)
	e.mark(b, s.Ref, false, backend.Marked)
	e.pinned(a, s.Ref, false)
	e.same("list after the marks", e.running(a, s.Ref), s)
}

func pinSurvives(e *env) {
	b, s := e.open(), e.spec("a")
	e.create(b, s)
	e.mark(b, s.Ref, true, backend.Marked)
	before := e.running(b, s.Ref)
	e.must(e.h.Restart(e.ctx), "harness: restart")
	got, ok := e.list(e.open())[s.ID]
	if !ok || !got.Pinned || !got.Renewed.Equal(before.Renewed) {
		e.failf("after a restart: listed %v, pinned %v, renewed %v; want a pin of %v", ok, got.Pinned, got.Renewed, before.Renewed)
	}
}

// markRenews waits longer and longer, for the engines whose clock has whole seconds.
func markRenews(e *env) {
	b, s := e.open(), e.spec("a")
	made := e.create(b, s)
	var got backend.Sandbox
	for wait := 2 * time.Millisecond; wait < 3*time.Second; wait *= 2 {
		e.pause(wait)
		e.mark(e.open(), s.Ref, false, backend.Marked)
		got = e.running(b, s.Ref)
		if got.Renewed.After(made.Renewed) {
			if !got.Created.Equal(made.Created) {
				e.failf("a mark moved the creation from %v to %v", made.Created, got.Created)
			}
			return
		}
	}
	e.failf("after marks over some seconds the lifetime began at %v, as before", got.Renewed)
}

func staleMarks(e *env) {
	b, s := e.open(), e.spec("a")
	e.mark(b, s.Ref, true, backend.Gone)
	e.create(b, s)
	e.destroy(b, s.Ref, backend.Stopped)
	next := again(s)
	made := e.create(b, next)
	e.mark(b, s.Ref, true, backend.Gone)
	e.pinned(b, next.Ref, false)
	if got := e.running(b, next.Ref); !got.Renewed.Equal(made.Renewed) {
		e.failf("a stale mark moved the lifetime from %v to %v", made.Renewed, got.Renewed)
	}
}
