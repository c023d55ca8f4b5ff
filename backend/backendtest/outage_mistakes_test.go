package backendtest_test

import (
	"context"
	"errors"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
)

func outageMistakes() []mistake {
	return []mistake{
		{"ListFailsWhileTheEngineIsDown", "takes an error for an empty list", "0 sandboxes, error <nil>", func(w *wrong) {
			w.list = func(ctx context.Context, ids ...string) (backend.Snapshot, error) {
				snap, err := w.Backend.List(ctx, ids...)
				if err != nil {
					return backend.Snapshot{Complete: true}, nil
				}
				return snap, nil
			}
		}},
		{"ListFailsWhileTheEngineIsDown", "takes an error for an id that is not there", "0 sandboxes, error <nil>", func(w *wrong) {
			w.list = func(ctx context.Context, ids ...string) (backend.Snapshot, error) {
				snap, err := w.Backend.List(ctx, ids...)
				if len(ids) > 0 {
					return snap, nil
				}
				return snap, err
			}
		}},
		{"CreateWhileTheEngineIsDownIsUnavailable", "gives any error", "connection refused", func(w *wrong) {
			w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
				made, err := w.Backend.Create(ctx, s)
				if err != nil {
					return backend.Sandbox{}, errors.New("connection refused")
				}
				return made, nil
			}
		}},
		{"CreateWhileTheEngineIsDownIsUnavailable", "does it later", "is listed", func(w *wrong) {
			var later []backend.Spec
			w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
				made, err := w.Backend.Create(ctx, s)
				if errors.Is(err, backend.ErrUnavailable) {
					later = append(later, s)
				}
				return made, err
			}
			w.list = func(ctx context.Context, ids ...string) (backend.Snapshot, error) {
				for _, s := range later {
					_, _ = w.Backend.Create(ctx, s)
				}
				return w.Backend.List(ctx, ids...)
			}
		}},
		{"EndsWhileTheEngineIsDownAreUnknown", "takes an error on destroy for gone", "destroy of", func(w *wrong) { w.destroy = errorIsGone(w.Backend.Destroy) }},
		{"EndsWhileTheEngineIsDownAreUnknown", "takes an error on stop for gone", "stop of", func(w *wrong) { w.stop = errorIsGone(w.Backend.Stop) }},
		{"EndsWhileTheEngineIsDownAreUnknown", "says stopped and an error", "come together only", func(w *wrong) {
			w.stop = func(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
				_, err := w.Backend.Stop(ctx, r)
				return backend.Stopped, err
			}
		}},
		{"EndsWhileTheEngineIsDownAreUnknown", "says unknown without an error", "come together only", func(w *wrong) {
			w.stop = func(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
				out, _ := w.Backend.Stop(ctx, r)
				return out, nil
			}
		}},
		{"PingFailsWhileTheEngineIsDown", "pings itself", "error <nil>", func(w *wrong) { w.ping = func(context.Context) error { return nil } }},
		{"PingFailsWhileTheEngineIsDown", "stays down", "mended", func(w *wrong) {
			var down error
			w.ping = func(ctx context.Context) error {
				down = errors.Join(down, w.Backend.Ping(ctx))
				return down
			}
		}},
		{"SandboxesSurviveARestart", "lists what this process created", "after a restart", (*wrong).listOwn},
		{"FailedDestroyIsToldAndCanBeRetried", "ignores what the volume says", "outcome stopped", func(w *wrong) {
			w.destroy = func(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
				out, err := w.Backend.Destroy(ctx, r)
				if err != nil {
					out = backend.Stopped
				}
				return out, nil
			}
		}},
		{"FailedDestroyIsToldAndCanBeRetried", "finds no container the second time", "outcome gone", func(w *wrong) { w.destroy = w.destroyRunning }},
		{"FailedDestroyIsToldAndCanBeRetried", "hides what it could not delete", "is listed as", (*wrong).hideStopped},
		{"FailedCreateLeavesNothing", "leaves what it had made", "is listed", func(w *wrong) { w.leaveFailed() }},
		{"FailedResumeKeepsTheWorkspace", "removes everything of that name", `is listed as ""`, func(w *wrong) {
			w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
				made, err := w.Backend.Create(ctx, s)
				if err != nil {
					_, _ = w.Backend.Destroy(ctx, w.current(s.Ref))
				}
				return made, err
			}
		}},
		{"FailedResumeKeepsTheWorkspace", "empties the volume", `has ""`, func(w *wrong) {
			w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
				made, err := w.Backend.Create(ctx, s)
				if err != nil {
					_ = w.WriteFile(s.ID, "proof", nil)
				}
				return made, err
			}
		}},
		{"FullEngineSaysSoAndKeepsNothing", "calls full unavailable", "unavailable", func(w *wrong) {
			w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
				made, err := w.Backend.Create(ctx, s)
				if errors.Is(err, backend.ErrQuota) {
					err = backend.ErrUnavailable
				}
				return made, err
			}
		}},
		{"FullEngineSaysSoAndKeepsNothing", "leaves a pending object", "is listed", func(w *wrong) { w.leaveFailed() }},
	}
}

// leaveFailed lists what failed creates had begun.
func (w *wrong) leaveFailed() {
	w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
		made, err := w.Backend.Create(ctx, s)
		if err != nil {
			w.world.Store("failed", s)
		}
		return made, err
	}
	w.list = func(ctx context.Context, ids ...string) (backend.Snapshot, error) {
		snap, err := w.Backend.List(ctx, ids...)
		if s, ok := w.world.Load("failed"); ok {
			snap.Sandboxes = append(snap.Sandboxes, backend.Sandbox{Spec: s.(backend.Spec)})
		}
		return snap, err
	}
}

func errorIsGone(end func(context.Context, backend.Ref) (backend.Outcome, error)) func(context.Context, backend.Ref) (backend.Outcome, error) {
	return func(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
		out, err := end(ctx, r)
		if err != nil {
			return backend.Gone, nil
		}
		return out, nil
	}
}

// slowly makes a call take so long that it can be cut off.
func (w *wrong) slowly(call string, after bool) {
	if _, again := w.world.LoadOrStore("slow", true); !again {
		w.Engine().Inject(memory.Fault{Call: call, Delay: 10 * time.Millisecond, After: after})
	}
}

func cutMistakes() []mistake {
	return []mistake{
		{"CancelledContextChangesNothing", "creates on a context of its own", "create with a cancelled context succeeded", func(w *wrong) {
			w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
				return w.Backend.Create(context.WithoutCancel(ctx), s)
			}
		}},
		{"CancelledContextChangesNothing", "lists nothing when told to stop", "empty instead of an error", func(w *wrong) {
			w.list = func(ctx context.Context, ids ...string) (backend.Snapshot, error) {
				snap, err := w.Backend.List(ctx, ids...)
				if ctx.Err() != nil {
					return backend.Snapshot{Complete: true}, nil
				}
				return snap, err
			}
		}},
		{"CancelledContextChangesNothing", "takes a cancelled stop for gone", "stop with a cancelled context", func(w *wrong) { w.stop = errorIsGone(w.Backend.Stop) }},
		{"CancelledContextChangesNothing", "creates behind an error", "is listed", func(w *wrong) {
			w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
				made, err := w.Backend.Create(context.WithoutCancel(ctx), s)
				return made, errors.Join(err, ctx.Err())
			}
		}},
		{"CreateCutOffAnywhereIsResolvedByAList", "labels when it is done", "that was cut off left", func(w *wrong) {
			w.slowly("create", true)
			w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
				nameless := backend.Spec{Ref: backend.Ref{ID: s.ID, Instance: "unlabelled"}}
				_, err := w.Backend.Create(context.WithoutCancel(ctx), nameless)
				if ctx.Err() != nil || err != nil {
					return backend.Sandbox{}, errors.Join(ctx.Err(), err)
				}
				_, _ = w.Backend.Destroy(ctx, nameless.Ref)
				return w.Backend.Create(context.WithoutCancel(ctx), s)
			}
		}},
		{"CreateCutOffAnywhereIsResolvedByAList", "says conflict when cut off", "no effect", func(w *wrong) {
			w.slowly("create", true)
			w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
				made, err := w.Backend.Create(ctx, s)
				if err != nil {
					err = backend.ErrConflict
				}
				return made, err
			}
		}},
		{"CreateCutOffAnywhereIsResolvedByAList", "says done when cut off", "is not listed", func(w *wrong) {
			w.slowly("create", false)
			w.create = func(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
				made, err := w.Backend.Create(ctx, s)
				if ctx.Err() != nil {
					return backend.Sandbox{Spec: s}, nil
				}
				return made, err
			}
		}},
		{"CreateCutOffAnywhereIsResolvedByAList", "leaves the volume of what was cut off", "left a workspace", func(w *wrong) {
			w.slowly("create", true)
			w.destroy = w.Backend.Stop
			w.hideStopped()
		}},
		{"DestroyCutOffAnywhereCanBeRetried", "says gone when cut off", "outcome gone", func(w *wrong) {
			w.slowly("destroy", false)
			w.destroy = errorIsGone(w.Backend.Destroy)
		}},
		{"DestroyCutOffAnywhereCanBeRetried", "says stopped when cut off", "is listed", func(w *wrong) {
			w.slowly("destroy", false)
			w.destroy = func(ctx context.Context, r backend.Ref) (backend.Outcome, error) {
				out, err := w.Backend.Destroy(ctx, r)
				if ctx.Err() != nil {
					return backend.Stopped, nil
				}
				return out, err
			}
		}},
		{"HungEngineEndsWithTheContext", "lists without its context", "still running after 1m0s", func(w *wrong) {
			w.list = func(ctx context.Context, ids ...string) (backend.Snapshot, error) {
				if _, err := w.Backend.List(ctx, ids...); err != nil {
					time.Sleep(time.Hour)
				}
				return backend.Snapshot{}, nil
			}
		}},
		{"HungEngineEndsWithTheContext", "stops by assuming so", "stop on a hung engine", func(w *wrong) { w.stop = errorIsGone(w.Backend.Stop) }},
		{"HungEngineEndsWithTheContext", "pings itself", "ping of a hung engine", func(w *wrong) { w.ping = func(context.Context) error { return nil } }},
		{"HungEngineEndsWithTheContext", "lists nothing", "list of a hung engine", func(w *wrong) {
			w.list = func(ctx context.Context, ids ...string) (backend.Snapshot, error) {
				snap, _ := w.Backend.List(ctx, ids...)
				return snap, nil
			}
		}},
	}
}
