package binding

import (
	"context"
	"strings"
	"time"

	"github.com/keepwell-go/keepwell/backend"
)

// Scope returns store as one installation sees it: what others keep in the same one is neither found nor forgotten, even for a
// sandbox of the same name. Prune alone is for the rows of all. name must not be empty or have a slash in it; Scope panics otherwise.
func Scope(store Store, name string) Store {
	if name == "" || strings.Contains(name, "/") {
		panic("binding: scope " + name + " is no name")
	}
	return &scope{store, name + "/"}
}

// scope writes its name before the id of each sandbox, which has no slash in it.
type scope struct {
	Store
	prefix string
}

func (s *scope) in(ref backend.Ref) backend.Ref {
	ref.ID = s.prefix + ref.ID
	return ref
}

func (s *scope) Begin(ctx context.Context, st Start) error {
	st.Ref = s.in(st.Ref)
	return s.Store.Begin(ctx, st)
}

func (s *scope) Bind(ctx context.Context, ref backend.Ref, id, bound string) error {
	return s.Store.Bind(ctx, s.in(ref), id, bound)
}

func (s *scope) End(ctx context.Context, ref backend.Ref, id string, at time.Time) error {
	return s.Store.End(ctx, s.in(ref), id, at)
}

func (s *scope) Bound(ctx context.Context, ref backend.Ref, id string) (string, error) {
	return s.Store.Bound(ctx, s.in(ref), id)
}

func (s *scope) Public(ctx context.Context, ref backend.Ref, bound []string) (map[string]string, error) {
	return s.Store.Public(ctx, s.in(ref), bound)
}

func (s *scope) Refs(ctx context.Context) (map[backend.Ref]time.Time, error) {
	all, err := s.Store.Refs(ctx)
	own := make(map[backend.Ref]time.Time)
	for ref, at := range all {
		if id, ok := strings.CutPrefix(ref.ID, s.prefix); ok {
			own[backend.Ref{ID: id, Instance: ref.Instance}] = at
		}
	}
	return own, err
}

func (s *scope) Forget(ctx context.Context, ref backend.Ref) error {
	return s.Store.Forget(ctx, s.in(ref))
}
