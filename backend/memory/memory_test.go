package memory_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
)

var _ backend.Marker = (*memory.Backend)(nil)

func spec(id, instance string) backend.Spec {
	return backend.Spec{Ref: backend.Ref{ID: id, Instance: instance}, Tenant: "t"}
}

// mustCreate fails the test at once if the spec is not created.
func mustCreate(t *testing.T, b backend.Backend, s backend.Spec) backend.Sandbox {
	t.Helper()
	made, err := b.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// listed returns what a complete list has, as "id/instance" with "+" if it runs and "!" if it is pinned.
func listed(t *testing.T, b backend.Backend) string {
	t.Helper()
	snap, err := b.List(t.Context())
	if err != nil || !snap.Complete {
		t.Fatalf("list: complete %v, error %v", snap.Complete, err)
	}
	all := []string{}
	for _, s := range snap.Sandboxes {
		name := s.ID + "/" + s.Instance
		if s.Running {
			name += "+"
		}
		if s.Pinned {
			name += "!"
		}
		all = append(all, name)
	}
	return fmt.Sprint(all)
}

func want(t *testing.T, b backend.Backend, list string) {
	t.Helper()
	if got := listed(t, b); got != list {
		t.Errorf("listed %s, want %s", got, list)
	}
}

// failed checks outcome and error of a call that must not be sure.
func failed(t *testing.T, out backend.Outcome, err, is error) {
	t.Helper()
	if out != backend.Unknown || !errors.Is(err, is) {
		t.Errorf("got %s, %v; want unknown, %v", out, err, is)
	}
}

// R104: one engine, two owners, two replicas of one of them.
func TestHandlesShareTheEngineAndOwnersDoNot(t *testing.T) {
	engine := memory.NewEngine(memory.Config{})
	a1, a2, b := engine.Open("a"), engine.Open("a"), engine.Open("b")
	mustCreate(t, a1, spec("x", "1"))
	mustCreate(t, b, spec("x", "2"))
	want(t, a2, "[x/1+]")
	want(t, b, "[x/2+]")
	if a1.Owner() != "a" || b.Engine() != engine {
		t.Errorf("owner is %q, engine %p; want a, %p", a1.Owner(), b.Engine(), engine)
	}
	want(t, memory.New(memory.Config{}), "[]")
}

func TestCallsAreCountedOverAllHandles(t *testing.T) {
	b := memory.New(memory.Config{})
	mustCreate(t, b, spec("x", "1"))
	_, _ = b.Create(t.Context(), backend.Spec{})
	_ = b.Engine().Open("other").Ping(t.Context())
	for call, want := range map[string]int{"create": 2, "ping": 1, "list": 0, "stop": 0} {
		if got := b.Engine().Calls(call); got != want {
			t.Errorf("%s was counted %d times, want %d", call, got, want)
		}
	}
}

func TestListIsInOrderAndItsOwn(t *testing.T) {
	b := memory.New(memory.Config{})
	for _, id := range []string{"c", "a", "b"} {
		mustCreate(t, b, spec(id, "1"))
	}
	want(t, b, "[a/1+ b/1+ c/1+]")
	snap, err := b.List(t.Context(), "c", "never")
	if err != nil || snap.Complete || len(snap.Sandboxes) != 1 || snap.Sandboxes[0].ID != "c" {
		t.Errorf("list of two ids: got %+v, %v; want c alone, not complete", snap, err)
	}
}

// A fake that handed out addresses that work by chance would hide a caller that dials too early.
func TestEndpointWithoutAHookLeadsNowhere(t *testing.T) {
	made := mustCreate(t, memory.New(memory.Config{}), spec("x", "1"))
	if want := (backend.Endpoint{Network: "unix", Address: "/nowhere/x.sock"}); made.Endpoint != want {
		t.Errorf("endpoint is %+v, want %+v", made.Endpoint, want)
	}
}

// The hooks let a test attach a real runner: one start for each instance, one end, outside of the engine's lock.
func TestHooksFollowEveryInstance(t *testing.T) {
	var told []string
	var b *memory.Backend
	b = memory.New(memory.Config{
		Endpoint: func(_ context.Context, s backend.Sandbox) (backend.Endpoint, error) {
			told = append(told, "start "+s.Instance)
			listed(t, b) // would hang under a lock
			return backend.Endpoint{Network: "tcp", Address: "here:1", Token: s.Instance}, nil
		},
		Ended: func(r backend.Ref) {
			told = append(told, "end "+r.Instance)
			listed(t, b)
		},
	})
	if made := mustCreate(t, b, spec("x", "1")); made.Endpoint.Token != "1" {
		t.Errorf("the endpoint is %+v, want the hook's", made.Endpoint)
	}
	ctx := t.Context()
	_, _ = b.Stop(ctx, spec("x", "1").Ref)
	_, _ = b.Stop(ctx, spec("x", "1").Ref)
	mustCreate(t, b, spec("x", "2"))
	_, _ = b.Destroy(ctx, spec("x", "2").Ref)
	mustCreate(t, b, spec("x", "3"))
	b.Kill("x")
	_, _ = b.Destroy(ctx, spec("x", "3").Ref)
	mustCreate(t, b, spec("x", "4"))
	b.Remove("x")
	const want = "[start 1 end 1 start 2 end 2 start 3 end 3 start 4 end 4]"
	if fmt.Sprint(told) != want {
		t.Errorf("the hooks were told %v, want %s", told, want)
	}
}

// R25: what the endpoint's failure costs is only what this create made.
func TestFailingOrPanickingEndpointLeavesWhatWasThere(t *testing.T) {
	broken := errors.New("no runner")
	for name, hook := range map[string]func() error{
		"error": func() error { return broken },
		"panic": func() error { panic(broken) },
	} {
		armed := false
		b := memory.New(memory.Config{Endpoint: func(context.Context, backend.Sandbox) (e backend.Endpoint, err error) {
			if armed {
				err = hook()
			}
			return e, err
		}})
		mustCreate(t, b, spec("old", "1"))
		_ = b.WriteFile("old", "f", []byte("kept"))
		_, _ = b.Stop(t.Context(), spec("old", "1").Ref)
		armed = true
		for _, id := range []string{"old", "new"} {
			func() {
				defer func() { _ = recover() }()
				if _, err := b.Create(t.Context(), spec(id, "2")); !errors.Is(err, broken) {
					t.Errorf("%s, %s: got %v, want the hook's error", name, id, err)
				}
			}()
		}
		armed = false
		want(t, b, "[old/1]")
		mustCreate(t, b, spec("old", "3"))
		if got, err := b.ReadFile("old", "f"); string(got) != "kept" || err != nil {
			t.Errorf("%s: the workspace has %q, %v; want what was in it", name, got, err)
		}
	}
}

func TestCapacityIsTheEnginesOwnQuota(t *testing.T) {
	engine := memory.NewEngine(memory.Config{Capacity: 2})
	a, b := engine.Open("a"), engine.Open("b")
	mustCreate(t, a, spec("x", "1"))
	mustCreate(t, b, spec("y", "1"))
	_, err := a.Create(t.Context(), spec("z", "1"))
	if !errors.Is(err, backend.ErrQuota) || err.Error() != "backend: engine quota: 2 of 2 sandboxes run" {
		t.Errorf("got %v, want ErrQuota with both numbers", err)
	}
	if _, err := a.Create(t.Context(), spec("x", "2")); !errors.Is(err, backend.ErrConflict) {
		t.Errorf("got %v, want ErrConflict: a duplicate is judged before the quota", err)
	}
	_, _ = b.Stop(t.Context(), spec("y", "1").Ref)
	mustCreate(t, a, spec("z", "1"))
}

func TestTimesComeFromTheClock(t *testing.T) {
	mock := clock.NewMock()
	b := memory.New(memory.Config{Clock: mock})
	mock.Add(time.Hour)
	created := mock.Now()
	made := mustCreate(t, b, spec("x", "1"))
	mock.Add(time.Minute)
	if out, err := b.Mark(t.Context(), made.Ref, true); out != backend.Marked || err != nil {
		t.Fatal(out, err)
	}
	snap, err := b.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := snap.Sandboxes[0]
	if !got.Created.Equal(created) || !got.Renewed.Equal(created.Add(time.Minute)) || !got.Pinned {
		t.Errorf("created %v, renewed %v, pinned %v; want %v and a minute later, pinned", got.Created, got.Renewed, got.Pinned, created)
	}
}

func TestFilesLiveAndDieWithTheWorkspace(t *testing.T) {
	b := memory.New(memory.Config{})
	if err := b.WriteFile("x", "f", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("write without a sandbox: got %v, want fs.ErrNotExist", err)
	}
	if _, err := b.ReadFile("x", "f"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read without a sandbox: got %v, want fs.ErrNotExist", err)
	}
	mustCreate(t, b, spec("x", "1"))
	data := []byte("data")
	if err := b.WriteFile("x", "f", data); err != nil {
		t.Fatal(err)
	}
	data[0] = 'X'
	got, err := b.ReadFile("x", "f")
	if err != nil || string(got) != "data" {
		t.Errorf("read %q, %v; want what was written then", got, err)
	}
	got[0] = 'X'
	if again, _ := b.ReadFile("x", "f"); string(again) != "data" {
		t.Errorf("read %q: a reader changed the file", again)
	}
	if _, err := b.ReadFile("x", "g"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read of another file: got %v, want fs.ErrNotExist", err)
	}
}

func TestBehindTheBackendsBack(t *testing.T) {
	b := memory.New(memory.Config{})
	mustCreate(t, b, spec("x", "1"))
	mustCreate(t, b, spec("y", "1"))
	for name, c := range map[string]struct{ did, want bool }{
		"kill": {b.Kill("x"), true}, "kill twice": {b.Kill("x"), false}, "remove what does not run": {b.Remove("x"), false},
		"remove": {b.Remove("y"), true}, "remove twice": {b.Remove("y"), false}, "kill nothing": {b.Kill("never"), false},
	} {
		if c.did != c.want {
			t.Errorf("%s: did it: %v, want %v", name, c.did, c.want)
		}
	}
	want(t, b, "[x/1]")
}

// Whoever comes second to a transition waits for its end and then sees what it left; a create does not wait.
func TestCallsMeetATransition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := memory.New(memory.Config{Ended: func(backend.Ref) { <-release }})
		made := mustCreate(t, b, spec("x", "1"))
		outs := make([]backend.Outcome, 3)
		var calls sync.WaitGroup
		calls.Go(func() { outs[0], _ = b.Stop(t.Context(), made.Ref) })
		synctest.Wait()
		calls.Go(func() { outs[1], _ = b.Stop(t.Context(), made.Ref) })
		calls.Go(func() { outs[2], _ = b.Mark(t.Context(), made.Ref, true) })
		synctest.Wait()
		if _, err := b.Create(t.Context(), spec("x", "2")); !errors.Is(err, backend.ErrConflict) {
			t.Errorf("create during a stop: got %v, want ErrConflict", err)
		}
		if b.Kill("x") || b.Remove("x") {
			t.Error("what is being stopped was killed as well")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		out, err := b.Destroy(ctx, made.Ref)
		failed(t, out, err, context.DeadlineExceeded)
		out, err = b.Mark(ctx, made.Ref, true)
		failed(t, out, err, context.DeadlineExceeded)
		close(release)
		calls.Wait()
		if want := []backend.Outcome{backend.Stopped, backend.Gone, backend.Gone}; !slices.Equal(outs, want) {
			t.Errorf("outcomes are %v, want %v", outs, want)
		}
		want(t, b, "[x/1]")
	})
}
