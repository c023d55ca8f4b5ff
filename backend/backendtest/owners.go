package backendtest

import (
	"fmt"

	"github.com/keepwell-go/keepwell/backend"
)

func owners() []Case {
	return []Case{
		{
			"OwnersNeverSeeEachOther", "R104", "two installations on one engine adopt each other's sandboxes",
			[]string{"Owners"},
			ownersApart,
		},
		{
			"OwnersCannotEndEachOthersSandboxes", "R104", "one installation's destroy ends another's sandbox",
			[]string{"Owners"},
			ownersCannotEnd,
		},
		{
			"OwnersSweepSideBySide", "R104", "one installation's sweep removes what another is using",
			[]string{"Owners"},
			ownersSweep,
		},
		{
			"ReplicasShareOneTruth", "R112", "what one replica created another cannot serve or end",
			nil, replicas,
		},
	}
}

func ownersApart(e *env) {
	a, b, s := e.openFor("a"), e.openFor("b"), e.spec("same")
	theirs := again(s)
	theirs.Tenant = "tenant-b"
	e.create(a, s)
	if got := e.list(b); len(got) != 0 {
		e.failf("owner b lists %d sandboxes of owner a", len(got))
	}
	if snap, err := b.List(e.ctx, s.ID); err != nil || len(snap.Sandboxes) != 0 {
		e.failf("owner b finds %d sandboxes of owner a by id, error %v", len(snap.Sandboxes), err)
	}
	e.create(b, theirs) // the same id is not the same sandbox
	e.running(a, s.Ref)
	e.running(b, theirs.Ref)
}

func ownersCannotEnd(e *env) {
	a, b, s := e.openFor("a"), e.openFor("b"), e.spec("a")
	e.create(a, s)
	e.stop(b, s.Ref, backend.Gone)
	e.destroy(b, s.Ref, backend.Gone)
	if m, ok := b.(backend.Marker); ok {
		out, err := m.Mark(e.ctx, s.Ref, true)
		e.outcome("mark of another owner's sandbox", out, err, []backend.Outcome{backend.Gone})
	}
	e.running(a, s.Ref)
}

// ownersSweep lets each owner destroy all that it sees, over and over, while the other's sandbox of the same id must stay.
func ownersSweep(e *env) {
	a, b, kept := e.openFor("a"), e.openFor("b"), e.spec("same")
	e.create(a, kept)
	e.together(4, func(i int) {
		s := again(kept)
		if i > 0 {
			s = e.spec(fmt.Sprintf("b-%d", i))
		}
		for range 4 {
			s = again(s)
			e.create(b, s)
			for _, seen := range e.list(b) {
				if seen.ID == s.ID {
					e.destroy(b, seen.Ref, backend.Stopped)
				}
			}
			e.running(a, kept.Ref)
		}
	})
	if got := e.list(a); len(got) != 1 {
		e.failf("owner a has %d sandboxes after b's sweeps, want 1", len(got))
	}
}

func replicas(e *env) {
	a, b, s := e.open(), e.open(), e.fullSpec()
	made := e.create(a, s)
	got := e.running(b, s.Ref)
	e.same("list by another replica", got, s)
	if got.Endpoint != made.Endpoint {
		e.failf("another replica lists endpoint %q, want %q and its token", got.Endpoint.Address, made.Endpoint.Address)
	}
	e.refused(b, again(s), backend.ErrConflict)
	e.stop(b, s.Ref, backend.Stopped)
	e.stop(a, s.Ref, backend.Gone)
	e.destroy(b, s.Ref, backend.Stopped, backend.Gone)
	e.absent(a, s.ID)
}
