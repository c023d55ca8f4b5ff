package bindingtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/refserver/binding"
	"github.com/keepwell-go/keepwell/refserver/binding/bindingtest"
)

// mistaken is a Store that does something wrong where a field is set, and everything else right.
type mistaken struct {
	binding.Store
	begin  func(context.Context, binding.Start) error
	bind   func(ctx context.Context, ref backend.Ref, id, bound string) error
	end    func(context.Context, backend.Ref, string, time.Time) error
	bound  func(context.Context, backend.Ref, string) (string, error)
	public func(context.Context, backend.Ref, []string) (map[string]string, error)
	prune  func(context.Context, time.Time) (int, error)
	refs   func(context.Context) (map[backend.Ref]time.Time, error)
	forget func(context.Context, backend.Ref) error
	close  func() error
}

func (m *mistaken) Begin(ctx context.Context, s binding.Start) error {
	if m.begin != nil {
		return m.begin(ctx, s)
	}
	return m.Store.Begin(ctx, s)
}

func (m *mistaken) Bind(ctx context.Context, ref backend.Ref, id, bound string) error {
	if m.bind != nil {
		return m.bind(ctx, ref, id, bound)
	}
	return m.Store.Bind(ctx, ref, id, bound)
}

func (m *mistaken) End(ctx context.Context, ref backend.Ref, id string, at time.Time) error {
	if m.end != nil {
		return m.end(ctx, ref, id, at)
	}
	return m.Store.End(ctx, ref, id, at)
}

func (m *mistaken) Bound(ctx context.Context, ref backend.Ref, id string) (string, error) {
	if m.bound != nil {
		return m.bound(ctx, ref, id)
	}
	return m.Store.Bound(ctx, ref, id)
}

func (m *mistaken) Public(ctx context.Context, ref backend.Ref, bound []string) (map[string]string, error) {
	if m.public != nil {
		return m.public(ctx, ref, bound)
	}
	return m.Store.Public(ctx, ref, bound)
}

func (m *mistaken) Prune(ctx context.Context, cutoff time.Time) (int, error) {
	if m.prune != nil {
		return m.prune(ctx, cutoff)
	}
	return m.Store.Prune(ctx, cutoff)
}

func (m *mistaken) Refs(ctx context.Context) (map[backend.Ref]time.Time, error) {
	if m.refs != nil {
		return m.refs(ctx)
	}
	return m.Store.Refs(ctx)
}

func (m *mistaken) Forget(ctx context.Context, ref backend.Ref) error {
	if m.forget != nil {
		return m.forget(ctx, ref)
	}
	return m.Store.Forget(ctx, ref)
}

func (m *mistaken) Close() error {
	if m.close != nil {
		return m.close()
	}
	return m.Store.Close()
}

// mistakes are wrong stores, by what is wrong, each with a case that must find it.
var mistakes = map[string]struct {
	finds string
	make  func(s binding.Store, m *mistaken)
}{
	"a lookup looks only for the sandbox": {"NoLookupAnswersForAnotherIncarnation", func(s binding.Store, m *mistaken) {
		m.bound = func(ctx context.Context, ref backend.Ref, id string) (string, error) {
			bound, err := s.Bound(ctx, ref, id)
			if bound == "" && ref.Instance != "one" {
				return s.Bound(ctx, backend.Ref{ID: ref.ID, Instance: "one"}, id)
			}
			return bound, err
		}
	}},
	"a page is asked for in every sandbox": {"NoLookupAnswersForAnotherSandbox", func(s binding.Store, m *mistaken) {
		m.public = func(ctx context.Context, ref backend.Ref, bound []string) (map[string]string, error) {
			return s.Public(ctx, backend.Ref{ID: "sbx-a", Instance: ref.Instance}, bound)
		}
	}},
	"names are joined to one": {"NamesThatJoinToTheSameAreNotTheSame", func(s binding.Store, m *mistaken) {
		joined := func(ref backend.Ref) backend.Ref { return backend.Ref{ID: ref.ID + ref.Instance} }
		m.bind = func(ctx context.Context, ref backend.Ref, id, bound string) error {
			return s.Bind(ctx, joined(ref), id, bound)
		}
		m.bound = func(ctx context.Context, ref backend.Ref, id string) (string, error) {
			return s.Bound(ctx, joined(ref), id)
		}
		m.public = func(ctx context.Context, ref backend.Ref, bound []string) (map[string]string, error) {
			return s.Public(ctx, joined(ref), bound)
		}
	}},
	"what has expired is not found": {"AnExpiredStartIsStillFound", func(s binding.Store, m *mistaken) {
		expired := map[string]bool{}
		m.begin = func(ctx context.Context, st binding.Start) error {
			expired[st.ID] = st.Expires.Before(st.At.Add(binding.Lifetime+1)) && st.At.Before(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))
			return s.Begin(ctx, st)
		}
		m.bound = func(ctx context.Context, ref backend.Ref, id string) (string, error) {
			if expired[id] {
				return "", nil
			}
			return s.Bound(ctx, ref, id)
		}
	}},
	"what has ended is not found": {"AProcessThatHasEndedIsStillFound", func(s binding.Store, m *mistaken) {
		ended := map[string]bool{}
		m.end = func(ctx context.Context, ref backend.Ref, id string, at time.Time) error {
			ended[id] = true
			return s.End(ctx, ref, id, at)
		}
		m.bound = func(ctx context.Context, ref backend.Ref, id string) (string, error) {
			if ended[id] {
				return "", nil
			}
			return s.Bound(ctx, ref, id)
		}
	}},
	"a bind overwrites": {"AnotherBindingIsAConflictAndChangesNothing", func(s binding.Store, m *mistaken) {
		m.bind = func(ctx context.Context, ref backend.Ref, id, bound string) error {
			if err := s.Bind(ctx, ref, id, bound); !errors.Is(err, binding.ErrConflict) {
				return err
			}
			return errors.Join(s.Forget(ctx, ref), s.Bind(ctx, ref, id, bound))
		}
	}},
	"the same bind again is a conflict": {"TheSameBindingAgainIsAccepted", func(s binding.Store, m *mistaken) {
		m.bind = func(ctx context.Context, ref backend.Ref, id, bound string) error {
			if is, err := s.Bound(ctx, ref, id); err != nil || is != "" {
				return errors.Join(err, binding.ErrConflict)
			}
			return s.Bind(ctx, ref, id, bound)
		}
	}},
	"the loser is told that it won": {"OfTwoWritersOneWins", func(s binding.Store, m *mistaken) {
		m.bind = func(ctx context.Context, ref backend.Ref, id, bound string) error {
			if err := s.Bind(ctx, ref, id, bound); err != nil && !errors.Is(err, binding.ErrConflict) {
				return err
			}
			return nil
		}
	}},
	"prune removes all": {"BindingsToMintedIDsOutliveExpiryAndEnd", func(s binding.Store, m *mistaken) {
		m.prune = func(ctx context.Context, cutoff time.Time) (int, error) {
			n, err := s.Prune(ctx, cutoff)
			refs, _ := s.Refs(ctx)
			for ref := range refs {
				err = errors.Join(err, s.Forget(ctx, ref))
			}
			return n, err
		}
	}},
	"prune removes what lives": {"ALiveStartStaysBoundOrNot", func(s binding.Store, m *mistaken) {
		m.prune = func(ctx context.Context, cutoff time.Time) (int, error) {
			return s.Prune(ctx, cutoff.Add(1000*time.Hour))
		}
	}},
	"prune stops short of the cutoff": {"ExpiryIsExactToTheMillisecond", func(s binding.Store, m *mistaken) {
		m.prune = func(ctx context.Context, cutoff time.Time) (int, error) {
			return s.Prune(ctx, cutoff.Add(-time.Millisecond))
		}
	}},
	"the last end counts": {"TheFirstEndCounts", func(s binding.Store, m *mistaken) {
		m.end = func(ctx context.Context, ref backend.Ref, id string, at time.Time) error {
			return s.End(ctx, ref, id, at.Add(-time.Hour))
		}
	}},
	"an end makes a start": {"TheEndOfAnUnknownStartDoesNothing", func(s binding.Store, m *mistaken) {
		m.end = func(ctx context.Context, ref backend.Ref, id string, at time.Time) error {
			return errors.Join(s.Begin(ctx, binding.Start{Ref: ref, ID: id, At: at, Expires: at}), s.End(ctx, ref, id, at))
		}
	}},
	"forget leaves the bindings": {"ForgetRemovesWhatPruneKeeps", func(_ binding.Store, m *mistaken) {
		m.forget = func(context.Context, backend.Ref) error { return nil }
	}},
	"refs are those with a start": {"RefsAreAllThatHaveRowsWithTheirLatestStart", func(s binding.Store, m *mistaken) {
		m.refs = func(ctx context.Context) (map[backend.Ref]time.Time, error) {
			refs, err := s.Refs(ctx)
			for ref, at := range refs {
				if at.IsZero() {
					delete(refs, ref)
				}
			}
			return refs, err
		}
	}},
	"the context is not heard": {"ACallWhoseContextHasEndedIsAnErrorAndChangesNothing", func(s binding.Store, m *mistaken) {
		m.bind = func(ctx context.Context, ref backend.Ref, id, bound string) error {
			return s.Bind(context.WithoutCancel(ctx), ref, id, bound)
		}
	}},
	"close leaves it open": {"AfterCloseEveryCallFails", func(_ binding.Store, m *mistaken) { m.close = func() error { return nil } }},
}

func TestEachMistakeIsFoundByTheCaseThatIsAboutIt(t *testing.T) {
	known := map[string]bindingtest.Case{}
	for _, c := range bindingtest.Cases() {
		known[c.Name] = c
	}
	for name, mistake := range mistakes {
		m := &mistaken{Store: binding.NewMemory()}
		mistake.make(m.Store, m)
		c, ok := known[mistake.finds]
		if !ok {
			t.Fatalf("there is no case %s", mistake.finds)
		}
		if err := c.Check(t.Context(), m); err == nil {
			t.Errorf("%s, and %s does not find it", name, mistake.finds)
		}
	}
}

func TestARightStorePassesEachCase(t *testing.T) {
	for _, c := range bindingtest.Cases() {
		if err := c.Check(t.Context(), &mistaken{Store: binding.NewMemory()}); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
}

func TestEachCaseHasANameOfItsOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range bindingtest.Cases() {
		if seen[c.Name] || c.Name == "" {
			t.Errorf("%q is there twice", c.Name)
		}
		seen[c.Name] = true
	}
}
