package backendtest

import (
	"fmt"
	"sync/atomic"

	"github.com/keepwell-go/keepwell/backend"
)

func lists() []Case {
	return []Case{
		{
			"EmptyListIsComplete", "R13", "an engine with nothing on it is taken for one that could not be asked",
			nil, emptyList,
		},
		{
			"ListByIDIsTrueForTheID", "R80", "the answer to a question by name denies what is there",
			nil, listByID,
		},
		{
			"CreateIsInTheNextList", "R13", "a sandbox is dropped as absent right after its create",
			nil, createIsListed,
		},
		{
			"ListIsWholeWhileOthersComeAndGo", "R13", "paging under change loses a living sandbox",
			nil, listIsWhole,
		},
	}
}

func emptyList(e *env) {
	if got := e.list(e.open()); len(got) != 0 {
		e.failf("a new owner has %d sandboxes, want none", len(got))
	}
}

func listByID(e *env) {
	b, here, there, never := e.open(), e.spec("here"), e.spec("there"), e.spec("never")
	e.create(b, here)
	e.create(b, there)
	snap, err := b.List(e.ctx, here.ID, never.ID)
	e.must(err, "list of two ids")
	found := map[string]backend.Ref{}
	for _, s := range snap.Sandboxes {
		found[s.ID] = s.Ref
	}
	if found[here.ID] != here.Ref {
		e.failf("list of %q by id has %v, want %v", here.ID, found[here.ID], here.Ref)
	}
	if r, ok := found[never.ID]; ok {
		e.failf("list of an id that never was has %v", r)
	}
	if _, ok := found[there.ID]; !ok && snap.Complete {
		e.failf("list of two ids says that it is complete but lacks %q", there.ID)
	}
}

func createIsListed(e *env) {
	e.together(rivals, func(i int) {
		b, s := e.open(), e.spec(fmt.Sprintf("n-%d", i))
		e.create(b, s)
		e.running(e.open(), s.Ref)
	})
	if got := e.list(e.open()); len(got) != rivals {
		e.failf("%d of %d sandboxes are listed", len(got), rivals)
	}
}

// listIsWhole lists while sandboxes come and go on both sides, by name, of those that stay.
func listIsWhole(e *env) {
	b := e.open()
	var stay []backend.Ref
	for _, name := range []string{"b", "m", "y"} {
		s := e.spec(name)
		e.create(b, s)
		stay = append(stay, s.Ref)
	}
	var churning atomic.Int32
	churning.Store(3)
	e.together(4, func(i int) {
		if i == 3 {
			for churning.Load() > 0 {
				for _, r := range stay {
					e.running(b, r)
				}
			}
			return
		}
		defer churning.Add(-1)
		b, s := e.open(), e.spec([]string{"a", "n", "z"}[i])
		for range 4 {
			s = again(s)
			e.create(b, s)
			e.destroy(b, s.Ref, backend.Stopped)
		}
	})
}
