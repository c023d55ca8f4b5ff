package backendtest

import (
	"errors"

	"github.com/keepwell-go/keepwell/backend"
)

func outages() []Case {
	return []Case{
		{
			"ListFailsWhileTheEngineIsDown", "R13, R16", "an empty list by accident drops every sandbox there is",
			[]string{"Break"},
			listWhileDown,
		},
		{
			"CreateWhileTheEngineIsDownIsUnavailable", "R25", "a create that never was holds a slot, or appears later",
			[]string{"Break"},
			createWhileDown,
		},
		{
			"EndsWhileTheEngineIsDownAreUnknown", "R16, R83", "gone is said of what still runs, and its slot is given away",
			[]string{"Break"},
			endsWhileDown,
		},
		{
			"PingFailsWhileTheEngineIsDown", "R37", "a dead engine is reported healthy",
			[]string{"Break"},
			pingWhileDown,
		},
		{
			"SandboxesSurviveARestart", "R101, R112", "a restart orphans what runs",
			[]string{"Restart"},
			surviveRestart,
		},
		{
			"FailedDestroyIsToldAndCanBeRetried", "R27, R29", "destroyed is said while the data lives on",
			[]string{"FailDestroy"},
			failedDestroy,
		},
		{
			"FailedCreateLeavesNothing", "R25", "half a sandbox blocks the id and costs money",
			[]string{"FailCreate"},
			failedCreate,
		},
		{
			"FailedResumeKeepsTheWorkspace", "R25", "cleaning up after a failed resume deletes old data",
			files("FailCreate", "Resume"), failedResume,
		},
		{
			"FullEngineSaysSoAndKeepsNothing", "R25", "a full engine is retried at once, for ever",
			[]string{"Fill"},
			fullEngine,
		},
	}
}

func listWhileDown(e *env) {
	b, s := e.open(), e.spec("a")
	e.create(b, s)
	mend := e.start(e.h.Break)
	for _, ids := range [][]string{nil, {s.ID}} {
		if snap, err := b.List(e.ctx, ids...); !errors.Is(err, backend.ErrUnavailable) {
			e.failf("list of a broken engine: %d sandboxes, error %v; want one that is %q", len(snap.Sandboxes), err, backend.ErrUnavailable)
		}
	}
	mend()
	e.running(b, s.Ref)
}

func createWhileDown(e *env) {
	b, s := e.open(), e.spec("a")
	mend := e.start(e.h.Break)
	e.refused(b, s, backend.ErrUnavailable)
	mend()
	e.pause(e.h.Settle)
	e.absent(b, s.ID)
	e.create(b, again(s))
}

func endsWhileDown(e *env) {
	b, s := e.open(), e.spec("a")
	e.create(b, s)
	mend := e.start(e.h.Break)
	e.stop(b, s.Ref, backend.Unknown)
	e.destroy(b, s.Ref, backend.Unknown)
	mend()
	e.destroy(b, s.Ref, backend.Stopped)
	e.absent(b, s.ID)
}

func pingWhileDown(e *env) {
	b := e.open()
	e.must(b.Ping(e.ctx), "ping")
	mend := e.start(e.h.Break)
	if err := b.Ping(e.ctx); !errors.Is(err, backend.ErrUnavailable) {
		e.failf("ping of a broken engine: error %v, want one that is %q", err, backend.ErrUnavailable)
	}
	mend()
	e.must(b.Ping(e.ctx), "ping of the mended engine")
}

func surviveRestart(e *env) {
	b, s, idle := e.open(), e.fullSpec(), e.spec("idle")
	e.create(b, s)
	e.create(b, idle)
	e.stop(b, idle.Ref, backend.Stopped)
	e.must(e.h.Restart(e.ctx), "harness: restart")
	for _, b := range []backend.Backend{b, e.open()} {
		got, ok := e.list(b)[s.ID]
		if !ok || got.Ref != s.Ref {
			e.failf("after a restart %q is listed as %v, want %v", s.ID, got.Ref, s.Ref)
		}
		e.same("list after a restart", got, s)
		e.stopped(b, idle.Ref)
	}
	e.destroy(b, s.Ref, backend.Stopped)
	e.absent(b, s.ID)
}

func failedDestroy(e *env) {
	b, s := e.open(), e.spec("a")
	e.create(b, s)
	mend := e.start(e.h.FailDestroy)
	e.destroy(b, s.Ref, backend.Unknown)
	e.destroy(b, s.Ref, backend.Unknown) // still there: the retry of a failure is not Gone
	if got, ok := e.list(b)[s.ID]; !ok || got.Ref != s.Ref {
		e.failf("after a failed destroy %q is listed as %v, want %v", s.ID, got.Ref, s.Ref)
	}
	mend()
	e.destroy(b, s.Ref, backend.Stopped, backend.Gone)
	e.absent(b, s.ID)
	if made := e.create(b, again(s)); made.Resumed {
		e.failf("create after the retried destroy says that it resumed a workspace")
	}
}

func failedCreate(e *env) {
	b, s := e.open(), e.spec("a")
	mend := e.start(e.h.FailCreate)
	if _, err := b.Create(e.ctx, s); err == nil {
		e.failf("create of %q succeeded, which the harness should have made fail", s.ID)
	}
	e.absent(b, s.ID)
	if e.h.Leftovers != nil {
		if left := e.leftovers(); len(left) != 0 {
			e.failf("after a failed create there is left: %q", left)
		}
	}
	mend()
	if made := e.create(b, again(s)); made.Resumed {
		e.failf("create after a failed one says that it resumed a workspace")
	}
}

func failedResume(e *env) {
	b, s := e.open(), e.spec("a")
	e.write(b, e.create(b, s), "kept")
	e.stop(b, s.Ref, backend.Stopped)
	mend := e.start(e.h.FailCreate)
	if _, err := b.Create(e.ctx, again(s)); err == nil {
		e.failf("resume of %q succeeded, which the harness should have made fail", s.ID)
	}
	if got := e.list(b)[s.ID]; got.ID == "" || got.Running {
		e.failf("after a failed resume %q is listed as %q, running %v; want stopped", s.ID, got.ID, got.Running)
	}
	mend()
	e.holds(b, e.create(b, again(s)), "kept")
}

func fullEngine(e *env) {
	b, s := e.open(), e.spec("a")
	mend := e.start(e.h.Fill)
	e.refused(b, s, backend.ErrQuota)
	e.absent(b, s.ID)
	mend()
	e.create(b, s)
}
