package backendtest

import "github.com/keepwell-go/keepwell/backend"

// files is what a case needs that looks into a workspace, and more.
func files(more ...string) []string { return append([]string{"WriteFile", "ReadFile"}, more...) }

// needs is what a case needs else.
func needs(names ...string) []string { return names }

func lifecycle() []Case {
	return []Case{
		{
			"CreateGivesARunningSandbox", "R66", "a create that returns early hands out a sandbox that refuses its first call",
			nil, createRuns,
		},
		{
			"StoppedSandboxIsListedAsSuch", "R2", "a stopped sandbox that looks running is adopted, a hidden one is never cleaned up",
			needs("Resume"), stoppedIsListed,
		},
		{
			"CreateOfAStoppedIDResumesItsWorkspace", "R45", "a stop for idleness that loses data is a destroy",
			files("Resume"), createResumes,
		},
		{
			"DestroyDeletesTheWorkspace", "R27", "the next user of the id reads the last one's files",
			files(), destroyDeletes,
		},
		{
			"DestroyOfAStoppedSandboxDeletesIt", "R29", "data of sandboxes that were stopped first stays for ever",
			files("Resume"), destroyDeletesStopped,
		},
		{
			"SecondDestroyIsGone", "R29", "a retry after a lost answer fails for ever, or is told twice that it did it",
			nil, secondDestroy,
		},
		{
			"SecondStopIsGone", "R83", "a retry after a lost answer fails for ever, or is told twice that it did it",
			needs("Resume"), secondStop,
		},
		{
			"UnknownIDsAreGone", "R29", "an object that somebody else removed cannot be crossed off",
			nil, unknownIDs,
		},
		{
			"KilledSandboxIsNotListedAsRunning", "R17", "a dead sandbox stays routable",
			needs("Kill"), killedIsNotRunning,
		},
		{
			"DestroyOfAKilledSandboxDeletesIt", "R29", "what crashed can never be removed",
			needs("Kill"), destroyKilled,
		},
		{
			"KilledSandboxIsResumed", "R26", "a crash holds the id for ever, or costs the workspace",
			files("Kill", "Resume"), resumeKilled,
		},
		{
			"NothingIsLeftAfterDestroy", "R101", "volumes, secrets and directories pile up unseen",
			needs("Leftovers"), nothingIsLeft,
		},
		{
			"PingAnswers", "R37", "a healthy engine is reported down",
			nil, pingAnswers,
		},
	}
}

func createRuns(e *env) {
	b, s := e.open(), e.spec("a")
	made := e.create(b, s)
	if !made.Running || made.Resumed {
		e.failf("create of a new id: running %v, resumed %v; want true, false", made.Running, made.Resumed)
	}
	got := e.running(b, s.Ref)
	if got.Endpoint.Network == "" || got.Endpoint.Address == "" || got.Endpoint.Address != made.Endpoint.Address {
		e.failf("endpoint is %q by list and %q by create; a runner's address is wanted", got.Endpoint.Address, made.Endpoint.Address)
	}
}

func stoppedIsListed(e *env) {
	b, s := e.open(), e.spec("a")
	e.create(b, s)
	e.stop(b, s.Ref, backend.Stopped)
	if got := e.stopped(b, s.Ref); got.Tenant != s.Tenant {
		e.failf("stopped sandbox is listed with tenant %q, want %q", got.Tenant, s.Tenant)
	}
}

func createResumes(e *env) {
	b, s := e.open(), e.spec("a")
	e.write(b, e.create(b, s), "kept")
	e.stop(b, s.Ref, backend.Stopped)
	s = again(s)
	made := e.create(b, s)
	if !made.Running || !made.Resumed {
		e.failf("create of a stopped id: running %v, resumed %v; want true, true", made.Running, made.Resumed)
	}
	e.holds(b, e.running(b, s.Ref), "kept")
}

func destroyDeletes(e *env) {
	b, s := e.open(), e.spec("a")
	e.write(b, e.create(b, s), "deleted")
	e.destroy(b, s.Ref, backend.Stopped)
	e.isFresh(b, again(s))
}

func destroyDeletesStopped(e *env) {
	b, s := e.open(), e.spec("a")
	e.write(b, e.create(b, s), "deleted")
	e.stop(b, s.Ref, backend.Stopped)
	e.destroy(b, s.Ref, backend.Stopped)
	e.isFresh(b, again(s))
}

// isFresh looks for anything that was there before s.
func (e *env) isFresh(b backend.Backend, s backend.Spec) {
	e.absent(b, s.ID)
	made := e.create(b, s)
	if made.Resumed {
		e.failf("create of a destroyed id says that it resumed a workspace")
	}
	e.lacks(b, made)
}

func secondDestroy(e *env) {
	b, s := e.open(), e.spec("a")
	e.create(b, s)
	e.destroy(b, s.Ref, backend.Stopped)
	e.destroy(b, s.Ref, backend.Gone)
	e.stop(b, s.Ref, backend.Gone)
	e.absent(b, s.ID)
}

func secondStop(e *env) {
	b, s := e.open(), e.spec("a")
	e.create(b, s)
	e.stop(b, s.Ref, backend.Stopped)
	e.stop(b, s.Ref, backend.Gone)
	e.stopped(b, s.Ref)
}

func unknownIDs(e *env) {
	b, s := e.open(), e.spec("never")
	e.stop(b, s.Ref, backend.Gone)
	e.destroy(b, s.Ref, backend.Gone)
	e.absent(b, s.ID)
}

func killedIsNotRunning(e *env) {
	b, s := e.open(), e.spec("a")
	e.must(e.h.Kill(e.ctx, b, e.create(b, s)), "harness: kill")
	if got, ok := e.list(b)[s.ID]; ok && got.Running {
		e.failf("%q is listed as running after it was killed", s.ID)
	}
	e.stop(b, s.Ref, backend.Gone, backend.Stopped)
}

func destroyKilled(e *env) {
	b, s := e.open(), e.spec("a")
	e.must(e.h.Kill(e.ctx, b, e.create(b, s)), "harness: kill")
	e.destroy(b, s.Ref, backend.Stopped, backend.Gone)
	e.absent(b, s.ID)
	if made := e.create(b, again(s)); made.Resumed {
		e.failf("create of a destroyed id says that it resumed a workspace")
	}
}

func resumeKilled(e *env) {
	b, s := e.open(), e.spec("a")
	made := e.create(b, s)
	e.write(b, made, "kept")
	e.must(e.h.Kill(e.ctx, b, made), "harness: kill")
	e.holds(b, e.create(b, again(s)), "kept")
}

func nothingIsLeft(e *env) {
	b, s := e.open(), e.spec("a")
	e.create(b, s)
	if left := e.leftovers(); len(left) == 0 {
		e.failf("harness: a running sandbox has no leftovers")
	}
	e.destroy(b, s.Ref, backend.Stopped)
	if left := e.leftovers(); len(left) != 0 {
		e.failf("after the destroy of the only sandbox there is left: %q", left)
	}
}

func (e *env) leftovers() []string {
	left, err := e.h.Leftovers(e.ctx, e.owner(""))
	e.must(err, "harness: leftovers")
	return left
}

func pingAnswers(e *env) {
	e.must(e.open().Ping(e.ctx), "ping")
}
