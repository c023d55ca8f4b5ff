package backendtest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keepwell-go/keepwell/backend"
)

// now returns what is really there under an id.
func (w *wrong) now(id string) (backend.Sandbox, bool) {
	snap, err := w.Backend.List(context.Background(), id)
	if err != nil || len(snap.Sandboxes) == 0 {
		return backend.Sandbox{}, false
	}
	return snap.Sandboxes[0], true
}

// current is the ref of an id, whatever instance was asked for.
func (w *wrong) current(r backend.Ref) backend.Ref {
	if s, ok := w.now(r.ID); ok {
		return s.Ref
	}
	return r
}

// listing changes each listed sandbox; false drops it.
func (w *wrong) listing(change func(s *backend.Sandbox) bool) {
	w.list = func(ctx context.Context, ids ...string) (backend.Snapshot, error) {
		snap, err := w.Backend.List(ctx, ids...)
		snap.Sandboxes = slices.Clone(snap.Sandboxes)
		kept := snap.Sandboxes[:0]
		for _, s := range snap.Sandboxes {
			if change(&s) {
				kept = append(kept, s)
			}
		}
		snap.Sandboxes = kept
		return snap, err
	}
}

func (w *wrong) hideStopped() { w.listing(func(s *backend.Sandbox) bool { return s.Running }) }

// onConflict replaces the answer of a create that lost.
func (w *wrong) onConflict(do func(s backend.Spec, err error) (backend.Sandbox, error)) {
	w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
		made, err := w.Backend.Create(ctx, s)
		if errors.Is(err, backend.ErrConflict) {
			return do(s, err)
		}
		return made, err
	}
}

func lifecycleMistakes() []mistake {
	return []mistake{
		{"CreateGivesARunningSandbox", "returns before it runs", "running false", func(w *wrong) {
			w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
				made, err := w.Backend.Create(ctx, s)
				made.Running = false
				return made, err
			}
		}},
		{"CreateGivesARunningSandbox", "lists no endpoint", `endpoint is ""`, func(w *wrong) {
			w.listing(func(s *backend.Sandbox) bool { s.Endpoint = backend.Endpoint{}; return true })
		}},
		{"CreateGivesARunningSandbox", "returns another ref", `returned {`, func(w *wrong) {
			w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
				made, err := w.Backend.Create(ctx, s)
				made.Instance += "x"
				return made, err
			}
		}},
		{"StoppedSandboxIsListedAsSuch", "lists what runs only", "is not listed", (*wrong).hideStopped},
		{"StoppedSandboxIsListedAsSuch", "forgets the tenant", `tenant ""`, func(w *wrong) {
			w.listing(func(s *backend.Sandbox) bool { s.Tenant = ""; return true })
		}},
		{"CreateOfAStoppedIDResumesItsWorkspace", "stops by destroying", "resumed false", func(w *wrong) { w.stop = w.Backend.Destroy }},
		{"CreateOfAStoppedIDResumesItsWorkspace", "resumes with a new volume", "read the file", func(w *wrong) {
			w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
				old, resumed := w.now(s.ID)
				_, _ = w.Backend.Destroy(ctx, old.Ref)
				made, err := w.Backend.Create(ctx, s)
				made.Resumed = resumed
				return made, err
			}
		}},
		{"DestroyDeletesTheWorkspace", "keeps the volume and hides it", "resumed a workspace", func(w *wrong) {
			w.destroy = w.Backend.Stop
			w.hideStopped()
		}},
		{"DestroyDeletesTheWorkspace", "keeps the volume and denies it", "got \"deleted\"", func(w *wrong) {
			w.destroy = w.Backend.Stop
			w.hideStopped()
			w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
				made, err := w.Backend.Create(ctx, s)
				made.Resumed = false
				return made, err
			}
		}},
		{"DestroyOfAStoppedSandboxDeletesIt", "destroys what runs only", "outcome gone", func(w *wrong) { w.destroy = w.destroyRunning }},
		{"SecondDestroyIsGone", "says stopped to everything", "outcome stopped", func(w *wrong) {
			w.destroy = func(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
				_, err := w.Backend.Destroy(ctx, r)
				return backend.Stopped, err
			}
		}},
		{"SecondStopIsGone", "fails on what does not run", "outcome unknown", func(w *wrong) { w.stop = notFoundFails(w.Backend.Stop) }},
		{"UnknownIDsAreGone", "fails on what does not exist", "outcome unknown", func(w *wrong) { w.destroy = notFoundFails(w.Backend.Destroy) }},
		{"KilledSandboxIsNotListedAsRunning", "lists what it created as running", "after it was killed", func(w *wrong) {
			w.listing(func(s *backend.Sandbox) bool { s.Running = true; return true })
		}},
		{"DestroyOfAKilledSandboxDeletesIt", "destroys what runs only", "is listed", func(w *wrong) { w.destroy = w.destroyRunning }},
		{"KilledSandboxIsResumed", "takes a dead one for a living", "conflict", func(w *wrong) {
			w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
				if _, ok := w.now(s.ID); ok {
					return backend.Sandbox{}, fmt.Errorf("%w: the name is taken", backend.ErrConflict)
				}
				return w.Backend.Create(ctx, s)
			}
		}},
		{"NothingIsLeftAfterDestroy", "keeps the volume and hides it", "there is left", func(w *wrong) {
			w.destroy = w.Backend.Stop
			w.hideStopped()
		}},
		{"PingAnswers", "cannot ping", "ping: no", func(w *wrong) { w.ping = func(context.Context) error { return errors.New("no") } }},
	}
}

func (w *wrong) destroyRunning(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
	if s, ok := w.now(r.ID); ok && !s.Running {
		return backend.Gone, nil
	}
	return w.Backend.Destroy(ctx, r)
}

func notFoundFails(end func(context.Context, backend.Ref) (backend.Outcome, error)) func(context.Context, backend.Ref) (backend.Outcome, error) {
	return func(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
		out, err := end(ctx, r)
		if out == backend.Gone {
			return backend.Unknown, errors.New("no such container")
		}
		return out, err
	}
}

func specMistakes() []mistake {
	return []mistake{
		{"SpecComesBackFromCreateAndList", "labels no tenant", `list of "full-`, func(w *wrong) {
			w.listing(func(s *backend.Sandbox) bool { s.Tenant = ""; return true })
		}},
		{"SpecComesBackFromCreateAndList", "lists no creation time", "list: created at 0001", func(w *wrong) {
			w.listing(func(s *backend.Sandbox) bool { s.Created = time.Time{}; return true })
		}},
		{"SpecComesBackFromCreateAndList", "lists no lifetime", "list: renewed at 0001", func(w *wrong) {
			w.listing(func(s *backend.Sandbox) bool { s.Renewed = time.Time{}; return true })
		}},
		{"SpecComesBackFromCreateAndList", "returns no limits", `create of "full-`, func(w *wrong) {
			w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
				made, err := w.Backend.Create(ctx, s)
				made.MemoryMB = 0
				return made, err
			}
		}},
		{"ResumedSandboxHasTheNewSpec", "keeps the labels of the volume", "carries", func(w *wrong) {
			w.listing(func(s *backend.Sandbox) bool {
				first, _ := w.world.LoadOrStore(s.ID, s.Spec)
				s.Pinned, s.TTL = first.(backend.Spec).Pinned, first.(backend.Spec).TTL
				return true
			})
			w.stop = func(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
				_, _ = w.list(ctx)
				return w.Backend.Stop(ctx, r)
			}
		}},
		{"EnvIsNotListed", "labels the environment", "1 variables", func(w *wrong) {
			w.listing(func(s *backend.Sandbox) bool { s.Env = map[string]string{"SECRET": "x"}; return true })
		}},
		{"LargestSpecIsAccepted", "has shorter names", "invalid: too long", func(w *wrong) {
			w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
				if len(s.ID) > 50 {
					return backend.Sandbox{}, fmt.Errorf("%w: too long", backend.ErrInvalid)
				}
				return w.Backend.Create(ctx, s)
			}
		}},
		{"InvalidSpecsLeaveNothing", "checks after the fact", "behind", func(w *wrong) {
			w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
				if s.Check() != nil && backend.CheckID(s.ID) == nil {
					_, _ = w.Backend.Create(ctx, backend.Spec{Ref: backend.Ref{ID: s.ID, Instance: "half"}})
				}
				return backend.Sandbox{}, backend.ErrInvalid
			}
		}},
		{"InvalidSpecsLeaveNothing", "leaves checks to the engine", "spec with", func(w *wrong) {
			w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
				made, err := w.Backend.Create(ctx, s)
				if err != nil {
					err = fmt.Errorf("engine says 400: %v", err)
				}
				return made, err
			}
		}},
		{"InvalidRefsAreNeverAny", "takes no instance for any", "stop of {a-", func(w *wrong) {
			w.stop = func(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
				if r.Instance == "" {
					r = w.current(r)
				}
				return w.Backend.Stop(ctx, r)
			}
		}},
		{"InvalidRefsAreNeverAny", "calls a bad ref gone", "mark of", func(w *wrong) {
			w.mark = func(context.Context, backend.Ref, bool) (backend.Outcome, error) { return backend.Gone, nil }
		}},
		{"InvalidRefsAreNeverAny", "calls a bad ref gone, too", "destroy of", func(w *wrong) {
			w.destroy = func(context.Context, backend.Ref) (backend.Outcome, error) { return backend.Gone, nil }
		}},
		{"EveryProfileIsAccepted", "knows one profile", "invalid: agent", func(w *wrong) {
			w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
				if s.Profile == backend.ProfileAgent {
					return backend.Sandbox{}, fmt.Errorf("%w: agent", backend.ErrInvalid)
				}
				return w.Backend.Create(ctx, s)
			}
		}},
		{"EveryProfileIsAccepted", "falls back to the default", `profile "default", want "agent"`, func(w *wrong) {
			w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
				s.Profile = backend.ProfileDefault
				return w.Backend.Create(ctx, s)
			}
		}},
	}
}

func fenceMistakes() []mistake {
	return []mistake{
		{"StaleRefsAreGoneAndTheReplacementLives", "destroys by name", "destroy of", func(w *wrong) {
			w.destroy = func(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
				return w.Backend.Destroy(ctx, w.current(r))
			}
		}},
		{"StaleRefsAreGoneAndTheReplacementLives", "says gone but ends it", "is not listed", func(w *wrong) {
			w.destroy = func(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
				out, err := w.Backend.Destroy(ctx, r)
				if out == backend.Gone {
					_, _ = w.Backend.Destroy(ctx, w.current(r))
				}
				return out, err
			}
		}},
		{"StaleRefsOfAResumedSandboxAreGone", "stops by name", "stop of", func(w *wrong) {
			w.stop = func(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
				return w.Backend.Stop(ctx, w.current(r))
			}
		}},
		{"StaleDestroyKeepsAStoppedWorkspace", "fences containers but not volumes", "destroy of", func(w *wrong) {
			w.destroy = func(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
				if s, ok := w.now(r.ID); ok && !s.Running {
					r = s.Ref
				}
				return w.Backend.Destroy(ctx, r)
			}
		}},
	}
}
