package backendtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keepwell-go/keepwell/backend"
)

// env is what one case works with. Its methods end the case by a panic with a failure, as testing.T.Fatal ends a test; in a
// goroutine they may be used through together only.
type env struct {
	h     Harness
	ctx   context.Context // ends the case, as that of a testing.T does
	token string          // in every owner and id of this case

	mu     sync.Mutex // guards the fields below
	opened map[string]backend.Backend
	mends  []func() error
}

// failure is a broken promise on its way out of a case.
type failure struct{ error }

func newEnv(ctx context.Context, h Harness) *env {
	token := strings.ToLower(rand.Text()[:10])
	return &env{h: h, ctx: ctx, token: token, opened: map[string]backend.Backend{}}
}

// caught runs f and returns what it failed with.
func caught(f func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.error
		default:
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	f()
	return nil
}

func (e *env) failf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// must ends the case on an error.
func (e *env) must(err error, format string, args ...any) {
	if err != nil {
		e.failf("%s: %w", fmt.Sprintf(format, args...), err)
	}
}

// together runs f in n goroutines, waits for them, and ends the case with the first failure.
func (e *env) together(n int, f func(i int)) {
	errs := make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { errs[i] = caught(func() { f(i) }) })
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		panic(failure{err})
	}
}

// pause waits for d, or ends the case with its context.
func (e *env) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.ctx.Done():
		e.failf("waiting: %w", context.Cause(e.ctx))
	}
}

// open returns a new handle of the case's owner.
func (e *env) open() backend.Backend { return e.openFor("") }

// openFor returns a new handle of another owner of this case.
func (e *env) openFor(name string) backend.Backend {
	owner := e.owner(name)
	b, err := e.h.New(owner)
	e.must(err, "open a backend for owner %q", owner)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.opened[owner] = b
	return b
}

func (e *env) owner(name string) string {
	if _, one := e.h.Cannot["Owners"]; one {
		return "backendtest"
	}
	return "t" + e.token + name
}

// spec returns a plain spec with an id of this case and a new instance.
func (e *env) spec(name string) backend.Spec {
	return backend.Spec{
		Ref:    backend.Ref{ID: name + "-" + e.token, Instance: strings.ToLower(rand.Text())},
		Tenant: "tenant-a", Image: e.h.Image, Profile: backend.ProfileDefault,
		TTL: time.Hour, Idle: 10 * time.Minute,
	}
}

// again returns s under a new instance.
func again(s backend.Spec) backend.Spec {
	s.Instance = strings.ToLower(rand.Text())
	return s
}

// start breaks something of the engine; it is mended by the returned function, or else at the end of the case.
func (e *env) start(breakIt func(context.Context) (func() error, error)) (mend func()) {
	undo, err := breakIt(e.ctx)
	e.must(err, "harness")
	undo = sync.OnceValue(undo)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mends = append(e.mends, undo)
	return func() { e.must(undo(), "harness: mend") }
}

// mendAll mends what the case has left broken.
func (e *env) mendAll() error {
	e.mu.Lock()
	mends := slices.Clone(e.mends)
	e.mu.Unlock()
	var errs []error
	for _, mend := range mends {
		errs = append(errs, mend())
	}
	return errors.Join(errs...)
}

// cleanUp mends and destroys what the case left, within a time of its own.
func (e *env) cleanUp(patience time.Duration) error {
	errs := []error{e.mendAll()}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), patience)
	defer cancel()
	for owner, b := range e.handles() {
		if err := caught(func() { e.destroyAll(ctx, b) }); err != nil {
			errs = append(errs, fmt.Errorf("owner %q: %w", owner, err))
		}
	}
	return errors.Join(errs...)
}

// handles returns a handle of each owner that the case has used.
func (e *env) handles() map[string]backend.Backend {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.opened)
}

func (e *env) destroyAll(ctx context.Context, b backend.Backend) {
	snap, err := b.List(ctx)
	e.must(err, "list")
	for _, s := range snap.Sandboxes {
		if strings.HasSuffix(s.ID, e.token) {
			_, err := b.Destroy(ctx, s.Ref)
			e.must(err, "destroy %q", s.ID)
		}
	}
}

// create creates s, which must succeed.
func (e *env) create(b backend.Backend, s backend.Spec) backend.Sandbox {
	made, err := b.Create(e.ctx, s)
	e.must(err, "create %q", s.ID)
	if made.Ref != s.Ref {
		e.failf("create %v returned %v", s.Ref, made.Ref)
	}
	return made
}

// refused asks for s, which must be refused with want.
func (e *env) refused(b backend.Backend, s backend.Spec, want error) {
	_, err := b.Create(e.ctx, s)
	if !errors.Is(err, want) {
		e.failf("create %q: got error %v, want one that is %q", s.ID, err, want)
	}
}

// stop and destroy must end in one of the outcomes.
func (e *env) stop(b backend.Backend, r backend.Ref, want ...backend.Outcome) {
	out, err := b.Stop(e.ctx, r)
	e.outcome(fmt.Sprintf("stop of %v", r), out, err, want)
}

func (e *env) destroy(b backend.Backend, r backend.Ref, want ...backend.Outcome) {
	out, err := b.Destroy(e.ctx, r)
	e.outcome(fmt.Sprintf("destroy of %v", r), out, err, want)
}

func (e *env) outcome(call string, got backend.Outcome, err error, want []backend.Outcome) {
	if (err != nil) != (got == backend.Unknown) {
		e.failf("%s: outcome %s with error %v: an error and Unknown come together only", call, got, err)
	}
	for _, w := range want {
		if got == w {
			return
		}
	}
	e.failf("%s: outcome %s (error %v), want %v", call, got, err, want)
}

// list returns the sandboxes of this case by id; the list must be complete.
func (e *env) list(b backend.Backend) map[string]backend.Sandbox {
	snap, err := b.List(e.ctx)
	e.must(err, "list")
	if !snap.Complete {
		e.failf("a list of everything is not complete")
	}
	all := map[string]backend.Sandbox{}
	for _, s := range snap.Sandboxes {
		if _, twice := all[s.ID]; twice {
			e.failf("%q is listed twice", s.ID)
		}
		if strings.HasSuffix(s.ID, e.token) {
			all[s.ID] = s
		}
	}
	return all
}

// running and stopped: the instance must be listed as such. absent: the id must not be listed.
func (e *env) running(b backend.Backend, r backend.Ref) backend.Sandbox {
	return e.listed(b, r, true)
}

func (e *env) stopped(b backend.Backend, r backend.Ref) backend.Sandbox {
	return e.listed(b, r, false)
}

func (e *env) listed(b backend.Backend, r backend.Ref, running bool) backend.Sandbox {
	got, ok := e.list(b)[r.ID]
	if !ok {
		e.failf("%q is not listed", r.ID)
	}
	if got.Ref != r || got.Running != running {
		e.failf("%q is listed as instance %q, running %v; want %q, running %v", r.ID, got.Instance, got.Running, r.Instance, running)
	}
	return got
}

func (e *env) absent(b backend.Backend, id string) {
	if got, ok := e.list(b)[id]; ok {
		e.failf("%q is listed as instance %q, running %v; want no such sandbox", id, got.Instance, got.Running)
	}
}

// write puts the one file of the case into a workspace; holds and lacks look for it.
func (e *env) write(b backend.Backend, s backend.Sandbox, data string) {
	e.must(e.h.WriteFile(e.ctx, b, s, "proof", []byte(data)), "write a file in %q", s.ID)
}

func (e *env) holds(b backend.Backend, s backend.Sandbox, data string) {
	got, err := e.h.ReadFile(e.ctx, b, s, "proof")
	e.must(err, "read the file in %q", s.ID)
	if string(got) != data {
		e.failf("the file in %q has %q, want %q", s.ID, got, data)
	}
}

func (e *env) lacks(b backend.Backend, s backend.Sandbox) {
	if got, err := e.h.ReadFile(e.ctx, b, s, "proof"); !errors.Is(err, fs.ErrNotExist) {
		e.failf("read the deleted file in %q: got %q, %v; want fs.ErrNotExist", s.ID, got, err)
	}
}
