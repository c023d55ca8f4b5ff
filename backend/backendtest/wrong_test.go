package backendtest_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/backendtest"
	"github.com/keepwell-go/keepwell/backend/memory"
)

// wrong is a handle on a good backend with some calls replaced by bad ones, which reach the good ones through Backend.
type wrong struct {
	*memory.Backend
	world *sync.Map // shared by all handles of a run, as what a bad backend keeps on its engine

	create  func(ctx context.Context, s backend.Spec) (backend.Sandbox, error)
	list    func(ctx context.Context, ids ...string) (backend.Snapshot, error)
	stop    func(ctx context.Context, r backend.Ref) (backend.Outcome, error)
	destroy func(ctx context.Context, r backend.Ref) (backend.Outcome, error)
	mark    func(ctx context.Context, r backend.Ref, pinned bool) (backend.Outcome, error)
	ping    func(ctx context.Context) error
}

func (w *wrong) Create(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
	return w.create(ctx, s)
}

func (w *wrong) List(ctx context.Context, ids ...string) (backend.Snapshot, error) {
	return w.list(ctx, ids...)
}

func (w *wrong) Stop(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
	return w.stop(ctx, r)
}

func (w *wrong) Destroy(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
	return w.destroy(ctx, r)
}

func (w *wrong) Mark(ctx context.Context, r backend.Ref, pinned bool) (backend.Outcome, error) {
	return w.mark(ctx, r, pinned)
}
func (w *wrong) Ping(ctx context.Context) error { return w.ping(ctx) }

// mistake is one way to get one case wrong.
type mistake struct {
	Case string // that must find it
	What string // is done wrong
	Says string // what the report must say
	Do   func(w *wrong)
}

// wrongHarness is a harness whose every handle makes the mistake.
func wrongHarness(do func(w *wrong)) backendtest.Harness {
	world := new(sync.Map)
	return harness(func(b *memory.Backend) backend.Backend {
		w := &wrong{b, world, b.Create, b.List, b.Stop, b.Destroy, b.Mark, b.Ping}
		do(w)
		return w
	})
}

func mistakes() (all []mistake) {
	for _, some := range [][]mistake{
		lifecycleMistakes(), specMistakes(), raceMistakes(), fenceMistakes(), listMistakes(),
		outageMistakes(), ownerMistakes(), markMistakes(), cutMistakes(),
	} {
		all = append(all, some...)
	}
	return all
}

// Each case can fail, at the mistake that it is there for, and with words that lead to it.
func TestEveryMistakeIsFound(t *testing.T) {
	cases := map[string]backendtest.Case{}
	for _, c := range backendtest.Cases() {
		cases[c.Name] = c
	}
	for _, m := range mistakes() {
		t.Run(m.Case+"/"+strings.ReplaceAll(m.What, " ", "_"), func(t *testing.T) {
			c, ok := cases[m.Case]
			if !ok {
				t.Fatalf("there is no case %q", m.Case)
			}
			synctest.Test(t, func(t *testing.T) {
				err := c.Check(t.Context(), wrongHarness(m.Do))
				if err == nil || !strings.Contains(err.Error(), m.Says) {
					t.Errorf("got %v, want a report that says %q", err, m.Says)
				}
				time.Sleep(2 * time.Hour) // for what was left behind to end in the bubble
			})
		})
	}
}

func TestEveryCaseHasAMistakeThatItFinds(t *testing.T) {
	found := map[string]bool{}
	for _, m := range mistakes() {
		found[m.Case] = true
	}
	for _, c := range backendtest.Cases() {
		if !found[c.Name] {
			t.Errorf("nothing shows that %s can fail", c.Name)
		}
	}
}

// A wrapper that changes nothing passes, so that it is the mistakes that are found.
func TestNoMistakePasses(t *testing.T) {
	for _, c := range backendtest.Cases() {
		synctest.Test(t, func(t *testing.T) {
			if err := c.Check(t.Context(), wrongHarness(func(*wrong) {})); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
		})
	}
}
