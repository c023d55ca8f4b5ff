package backendtest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
)

func raceMistakes() []mistake {
	return []mistake{
		{"ConflictLeavesTheWinnerAlone", "cleans up by name", "got error <nil>, want one that is", func(w *wrong) {
			w.onConflict(func(s backend.Spec, err error) (backend.Sandbox, error) {
				_, _ = w.Backend.Destroy(context.Background(), w.current(s.Ref))
				return backend.Sandbox{}, err
			})
		}},
		{"ConflictLeavesTheWinnerAlone", "takes a create for a lookup", "got error <nil>", func(w *wrong) {
			w.onConflict(func(s backend.Spec, err error) (backend.Sandbox, error) {
				if there, _ := w.now(s.ID); there.Ref == s.Ref {
					return there, nil
				}
				return backend.Sandbox{}, err
			})
		}},
		{"ConflictLeavesTheWinnerAlone", "starts the winner again", "is created at", func(w *wrong) {
			w.onConflict(func(s backend.Spec, err error) (backend.Sandbox, error) {
				there, _ := w.now(s.ID)
				time.Sleep(time.Second)
				_, _ = w.Backend.Destroy(context.Background(), there.Ref)
				_, _ = w.Backend.Create(context.Background(), there.Spec)
				return backend.Sandbox{}, err
			})
		}},
		{"ConflictLeavesTheWinnersWorkspaceAlone", "prepares the volume before it asks", "has", func(w *wrong) {
			w.onConflict(func(s backend.Spec, err error) (backend.Sandbox, error) {
				_ = w.WriteFile(s.ID, "proof", nil)
				return backend.Sandbox{}, err
			})
		}},
		{"StoppedSandboxOfAnotherTenantIsAConflict", "resumes by name", "got error <nil>", func(w *wrong) {
			w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
				if old, ok := w.now(s.ID); ok {
					s.Tenant = old.Tenant
				}
				return w.Backend.Create(ctx, s)
			}
		}},
		{"SixteenCreatesHaveOneWinner", "gives the losers the winner's", "16 of 16", func(w *wrong) {
			w.onConflict(func(s backend.Spec, err error) (backend.Sandbox, error) {
				there, _ := w.now(s.ID)
				return there, nil
			})
		}},
		{"SixteenCreatesHaveOneWinner", "gives losers any error", "a loser got error", func(w *wrong) {
			w.onConflict(func(s backend.Spec, err error) (backend.Sandbox, error) {
				return backend.Sandbox{}, errors.New("name in use")
			})
		}},
		{"SixteenCreatesHaveOneWinner", "lets nobody win", "0 of 16", func(w *wrong) {
			w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
				made, err := w.Backend.Create(ctx, s)
				_, _ = w.Backend.Destroy(ctx, made.Ref)
				return backend.Sandbox{}, errors.Join(backend.ErrConflict, err)
			}
		}},
		{"SixteenResumesHaveOneWinner", "cleans the volume after a conflict", `has ""`, func(w *wrong) {
			w.onConflict(func(s backend.Spec, err error) (backend.Sandbox, error) {
				_ = w.WriteFile(s.ID, "proof", nil)
				return backend.Sandbox{}, err
			})
		}},
		{"SixteenDestroysAreAllTrue", "fails on what is being removed", "outcome unknown", func(w *wrong) {
			w.destroy = notFoundFails(w.Backend.Destroy)
		}},
		{"SixteenDestroysAreAllTrue", "never admits it", "none says", func(w *wrong) {
			w.destroy = func(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
				_, err := w.Backend.Destroy(ctx, r)
				return backend.Gone, err
			}
		}},
		{"DestroyOfTheLastNeverMeetsTheNext", "looks at the instance, then destroys by name", "is not listed", func(w *wrong) {
			w.destroy = func(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
				if w.current(r) != r {
					return backend.Gone, nil
				}
				nth, _ := w.world.LoadOrStore("destroys", new(atomic.Int64))
				time.Sleep(time.Duration(nth.(*atomic.Int64).Add(1)%2) * 10 * time.Millisecond)
				return w.Backend.Destroy(ctx, w.current(r))
			}
		}},
	}
}

func listMistakes() []mistake {
	return []mistake{
		{"EmptyListIsComplete", "is not sure", "not complete", func(w *wrong) {
			w.list = func(context.Context, ...string) (backend.Snapshot, error) { return backend.Snapshot{}, nil }
		}},
		{"EmptyListIsComplete", "lists what others left", "1 sandboxes", func(w *wrong) {
			_, first := w.world.LoadOrStore("first", true)
			w.list = func(ctx context.Context, ids ...string) (backend.Snapshot, error) {
				if _, err := w.Backend.List(ctx, ids...); err != nil || first {
					return backend.Snapshot{}, err
				}
				spec := backend.Spec{Ref: backend.Ref{ID: "x-" + w.Owner()[1:], Instance: "x"}}
				return backend.Snapshot{Sandboxes: []backend.Sandbox{{Spec: spec}}, Complete: true}, nil
			}
		}},
		{"ListByIDIsTrueForTheID", "finds nothing by name", "by id has { }", func(w *wrong) {
			w.list = func(ctx context.Context, ids ...string) (backend.Snapshot, error) {
				if len(ids) > 0 {
					return backend.Snapshot{}, nil
				}
				return w.Backend.List(ctx)
			}
		}},
		{"ListByIDIsTrueForTheID", "takes a part for the whole", "but lacks", func(w *wrong) {
			w.list = func(ctx context.Context, ids ...string) (backend.Snapshot, error) {
				snap, err := w.Backend.List(ctx, ids...)
				snap.Complete = true
				return snap, err
			}
		}},
		{"ListByIDIsTrueForTheID", "invents what it is asked for", "that never was", func(w *wrong) {
			w.list = func(ctx context.Context, ids ...string) (backend.Snapshot, error) {
				snap, err := w.Backend.List(ctx)
				for _, id := range ids {
					if _, ok := w.now(id); !ok {
						spec := backend.Spec{Ref: backend.Ref{ID: id, Instance: "x"}}
						snap.Sandboxes = append(snap.Sandboxes, backend.Sandbox{Spec: spec})
					}
				}
				return snap, err
			}
		}},
		{"CreateIsInTheNextList", "lists from a cache of a second", "is not listed", func(w *wrong) {
			w.list = func(ctx context.Context, ids ...string) (backend.Snapshot, error) {
				fresh, err := w.Backend.List(ctx)
				if at, ok := w.world.Load("at"); ok && time.Since(at.(time.Time)) < time.Second {
					cached, _ := w.world.Load("snap")
					return cached.(backend.Snapshot), err
				}
				w.world.Store("snap", fresh)
				w.world.Store("at", time.Now())
				return fresh, err
			}
			_, _ = w.list(context.Background())
		}},
		{"ListIsWholeWhileOthersComeAndGo", "pages by offset", "listed", func(w *wrong) {
			if _, again := w.world.LoadOrStore("slow", true); !again {
				w.Engine().Inject(memory.Fault{Call: "create", Delay: time.Millisecond})
				w.Engine().Inject(memory.Fault{Call: "destroy", Delay: time.Millisecond})
			}
			w.list = func(ctx context.Context, ids ...string) (backend.Snapshot, error) {
				page, err := w.Backend.List(ctx)
				time.Sleep(1500 * time.Microsecond)
				rest, err2 := w.Backend.List(ctx)
				n := min(2, len(page.Sandboxes), len(rest.Sandboxes))
				rest.Sandboxes = append(slices.Clone(page.Sandboxes[:n]), rest.Sandboxes[n:]...)
				return rest, errors.Join(err, err2)
			}
		}},
	}
}

func ownerMistakes() []mistake {
	return []mistake{
		{"OwnersNeverSeeEachOther", "lists without an owner label", "owner b lists 1", func(w *wrong) {
			w.world.Store(w.Owner(), w.Backend)
			w.list = func(ctx context.Context, ids ...string) (all backend.Snapshot, err error) {
				all.Complete = true
				for _, b := range w.everyOwner() {
					snap, _ := b.List(ctx)
					all.Sandboxes = append(all.Sandboxes, snap.Sandboxes...)
				}
				return all, nil
			}
		}},
		{"OwnersNeverSeeEachOther", "finds by id without an owner label", "by id", func(w *wrong) {
			w.world.Store(w.Owner(), w.Backend)
			w.list = func(ctx context.Context, ids ...string) (all backend.Snapshot, err error) {
				if len(ids) == 0 {
					return w.Backend.List(ctx)
				}
				for _, b := range w.everyOwner() {
					snap, _ := b.List(ctx, ids...)
					all.Sandboxes = append(all.Sandboxes, snap.Sandboxes...)
				}
				return all, nil
			}
		}},
		{"OwnersNeverSeeEachOther", "names containers without an owner", "conflict", func(w *wrong) {
			w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
				if _, taken := w.world.LoadOrStore(s.ID, true); taken {
					return backend.Sandbox{}, backend.ErrConflict
				}
				return w.Backend.Create(ctx, s)
			}
		}},
		{"OwnersCannotEndEachOthersSandboxes", "destroys whosever it is", "outcome stopped", func(w *wrong) {
			w.world.Store(w.Owner(), w.Backend)
			w.destroy = func(ctx context.Context, r backend.Ref) (out backend.Outcome, err error) {
				for _, b := range w.everyOwner() {
					if out, err = b.Destroy(ctx, r); out == backend.Stopped {
						return out, err
					}
				}
				return out, err
			}
		}},
		{"OwnersCannotEndEachOthersSandboxes", "marks whosever it is", "outcome marked", func(w *wrong) {
			w.mark = func(context.Context, backend.Ref, bool) (backend.Outcome, error) { return backend.Marked, nil }
		}},
		{"OwnersSweepSideBySide", "removes volumes without an owner label", "listed", func(w *wrong) {
			w.world.Store(w.Owner(), w.Backend)
			w.destroy = func(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
				for _, b := range w.everyOwner() {
					if b != w.Backend {
						b.Remove(r.ID)
					}
				}
				return w.Backend.Destroy(ctx, r)
			}
		}},
		{"ReplicasShareOneTruth", "lists what this process created", "is not listed", (*wrong).listOwn},
		{"ReplicasShareOneTruth", "keeps the token in the process", "lists endpoint", func(w *wrong) {
			w.listing(func(s *backend.Sandbox) bool { s.Endpoint.Token = fmt.Sprintf("%p", w); return true })
		}},
	}
}

func (w *wrong) everyOwner() map[string]*memory.Backend {
	all := map[string]*memory.Backend{}
	w.world.Range(func(owner, b any) bool {
		if b, ok := b.(*memory.Backend); ok {
			all[owner.(string)] = b
		}
		return true
	})
	return maps.Clone(all)
}

func (w *wrong) listOwn() {
	own := map[backend.Ref]bool{}
	w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
		made, err := w.Backend.Create(ctx, s)
		own[made.Ref] = true
		return made, err
	}
	w.listing(func(s *backend.Sandbox) bool { return own[s.Ref] })
}

func markMistakes() []mistake {
	// onHandle keeps pins where only this handle finds them.
	onHandle := func(w *wrong) {
		pins := map[string]bool{}
		w.mark = func(_ context.Context, r backend.Ref, pinned bool) (backend.Outcome, error) {
			pins[r.ID] = pinned
			return backend.Marked, nil
		}
		w.listing(func(s *backend.Sandbox) bool { s.Pinned = pins[s.ID]; return true })
	}
	return []mistake{
		{"PinIsSeenByEveryReplica", "keeps pins in the process", "pinned false, want true", onHandle},
		{"PinSurvivesARestart", "keeps pins in the process", "pinned false", onHandle},
		{"PinIsSeenByEveryReplica", "says stopped for marked", "outcome stopped", func(w *wrong) {
			w.mark = func(ctx context.Context, r backend.Ref, pinned bool) (backend.Outcome, error) {
				_, err := w.Backend.Mark(ctx, r, pinned)
				return backend.Stopped, err
			}
		}},
		{"MarkStartsTheLifetimeAnew", "pins only", "as before", func(w *wrong) {
			w.listing(func(s *backend.Sandbox) bool { s.Renewed = s.Created; return true })
		}},
		{"MarkStartsTheLifetimeAnew", "moves the creation", "moved the creation", func(w *wrong) {
			w.listing(func(s *backend.Sandbox) bool { s.Created = s.Renewed; return true })
		}},
		{"StaleMarksAreGone", "marks by name", "outcome marked", func(w *wrong) {
			w.mark = func(ctx context.Context, r backend.Ref, pinned bool) (backend.Outcome, error) {
				return w.Backend.Mark(ctx, w.current(r), pinned)
			}
		}},
	}
}
