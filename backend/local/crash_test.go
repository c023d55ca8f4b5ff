//go:build linux

package local_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/local"
)

// sleepers returns the processes of the machine that sleep for exactly so long: a number that no other test uses.
func sleepers(t testing.TB, seconds string) (pids []string) {
	t.Helper()
	cmdlines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range cmdlines {
		if raw, err := os.ReadFile(path); err == nil && string(raw) == "sleep\x00"+seconds+"\x00" {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

// hideouts start a sleep of n seconds in ways to escape who looks for it: as a child, in its own session, and as an orphan.
func hideouts(t testing.TB, s backend.Sandbox, n string) {
	t.Helper()
	background(t, s, "sleep", n)
	must(t, s, "setsid sleep "+n+" >/dev/null 2>&1 </dev/null & (setsid sh -c 'sleep "+n+" & exit' >/dev/null 2>&1 </dev/null &)")
	for end := time.Now().Add(time.Minute); len(sleepers(t, n)) != 3; pause(10 * time.Millisecond) {
		if got := sleepers(t, n); time.Now().After(end) {
			t.Fatalf("%d of 3 processes run: %v", len(got), got)
		}
	}
}

// R96
func TestNothingOutlivesAStopOrADestroy(t *testing.T) {
	t.Parallel()
	b := open(t, shortDir(t))
	n := itoa(1_000_000 + os.Getpid())
	for verb, end := range map[string]func(context.Context, backend.Ref) (backend.Outcome, error){"stop": b.Stop, "destroy": b.Destroy} {
		s := create(t, b, verb, "i1")
		hideouts(t, s, n)
		out, err := end(t.Context(), s.Ref)
		ended(t, out, err)
		if left := sleepers(t, n); len(left) != 0 {
			t.Errorf("after the %s live %v", verb, left)
		}
	}
}

// R16, R101: after a crash of the host its sandboxes are stopped, and that is true.
func TestWhatACrashedHostLeftRunningIsKilled(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	b := open(t, dir)
	n := itoa(2_000_000 + os.Getpid())
	s := create(t, b, "a", "i1")
	uid := must(t, s, "echo kept >file; id -u")
	hideouts(t, s, n)
	if err := killHost(dir); err != nil {
		t.Fatal(err)
	}
	if len(sleepers(t, n)) == 0 {
		t.Fatal("nothing outlived the host: there is nothing to be seen here")
	}
	if got, ok := listed(t, b, "a"); !ok || got.Running || got.Ref != s.Ref {
		t.Errorf("after a crash the sandbox is listed: %v, as %+v; want it stopped", ok, got)
	}
	if left := sleepers(t, n); len(left) != 0 {
		t.Errorf("the sandbox is said to be stopped, and %v live", left)
	}
	other := create(t, b, "other", "i1")
	again := create(t, b, "a", "i2")
	if got := must(t, again, "cat file; id -u"); got != "kept\n"+uid || !again.Resumed {
		t.Errorf("resumed (%v): file and uid are %q, want %q", again.Resumed, got, "kept\n"+uid)
	}
	if got := must(t, other, "id -u"); os.Geteuid() == 0 && got == uid {
		t.Errorf("uid %s was given to a second sandbox", uid)
	}
}

// R101: each state that a crash can leave on the disk, and what a start makes of it.
func TestAStartFinishesOrRemovesWhatWasCutOff(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	b := open(t, dir)
	for _, id := range []string{"whole", "destroying", "unreadable", "renamed"} {
		create(t, b, id, "i1")
	}
	if err := killHost(dir); err != nil {
		t.Fatal(err)
	}
	at := func(rest ...string) string { return filepath.Join(append([]string{dir, "sandboxes"}, rest...)...) }
	err := errors.Join(
		os.Mkdir(at("made"), 0o710),
		os.MkdirAll(at("homed", "home", "tmp"), 0o700),
		os.MkdirAll(at("labelled", "home", "tmp"), 0o700),
		os.WriteFile(at("labelled", "meta.json.new"), []byte(`{"id":"lab`), 0o600),
		os.WriteFile(at("whole", "meta.json.new"), []byte(`{"id":"who`), 0o600),
		os.Rename(at("destroying", "meta.json"), at("destroying", "meta.destroying.json")),
		os.RemoveAll(at("destroying", "home", "tmp")),
		os.WriteFile(at("unreadable", "meta.json"), []byte(`{"id":"unr`), 0o600),
		os.Rename(at("renamed"), at("stranger")),
	)
	if err != nil {
		t.Fatal(err)
	}
	snap, err := b.List(t.Context())
	if err != nil || len(snap.Sandboxes) != 1 || snap.Sandboxes[0].ID != "whole" || snap.Sandboxes[0].Running {
		t.Errorf("the list has %+v, error %v; want the whole one alone, stopped", snap.Sandboxes, err)
	}
	left, err := ids(dir)
	if want := "stranger unreadable whole"; err != nil || strings.Join(left, " ") != want {
		t.Errorf("the disk has %v, error %v; want %s", left, err, want)
	}
	checkUnreadable(t, b, snap)
	create(t, b, "made", "i1")
	if s := create(t, b, "whole", "i2"); !s.Resumed {
		t.Error("the whole sandbox was not resumed")
	}
}

// checkUnreadable: what cannot be read is not absent, not anybody's, and not deleted.
func checkUnreadable(t *testing.T, b *local.Backend, snap backend.Snapshot) {
	t.Helper()
	if snap.Complete {
		t.Error("a list that lacks an unreadable sandbox says that it is complete")
	}
	if _, err := b.List(t.Context(), "unreadable"); err == nil || !strings.Contains(err.Error(), "meta.json") {
		t.Errorf("list by name: error %v, want one that names the file", err)
	}
	if _, err := b.Create(t.Context(), spec("unreadable", "i2")); !errors.Is(err, backend.ErrConflict) {
		t.Errorf("create: error %v, want a conflict", err)
	}
	if out, err := b.Destroy(t.Context(), backend.Ref{ID: "unreadable", Instance: "i1"}); out != backend.Unknown || err == nil {
		t.Errorf("destroy: %s, error %v; want unknown", out, err)
	}
}

// R101, R83: kills of the host at any moment of creates, stops and destroys. What follows is always a truth that can be worked with.
func TestAHostKilledAtAnyMomentLeavesNothingUnlabelled(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	b := open(t, dir)
	for round := range 8 {
		var busy sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for w := range 4 {
			busy.Go(func() { churn(ctx, b, fmt.Sprintf("w-%d", w), round) })
		}
		pause(time.Duration(3+7*round) * time.Millisecond)
		if err := killHost(dir); err != nil {
			t.Fatal(err)
		}
		cancel()
		busy.Wait()
		checkTruth(t, b, dir)
	}
}

// churn creates, stops and destroys one id until ctx ends; that calls fail is the point.
func churn(ctx context.Context, b *local.Backend, id string, round int) {
	for i := 0; ctx.Err() == nil; i++ {
		s := spec(id, fmt.Sprintf("i%d-%d", round, i))
		_, err := b.Create(ctx, s)
		if err != nil {
			snap, _ := b.List(ctx, id)
			for _, left := range snap.Sandboxes {
				_, _ = b.Destroy(ctx, left.Ref)
			}
			continue
		}
		_, _ = b.Stop(ctx, s.Ref)
		_, _ = b.Destroy(ctx, s.Ref)
	}
}

// checkTruth compares the list with the disk, then destroys all that there is.
func checkTruth(t *testing.T, b *local.Backend, dir string) {
	t.Helper()
	snap, err := b.List(t.Context())
	if err != nil || !snap.Complete {
		t.Fatalf("list after a crash: complete %v, error %v", snap.Complete, err)
	}
	onDisk, err := ids(dir)
	if err != nil || len(onDisk) != len(snap.Sandboxes) {
		t.Errorf("the list has %d sandboxes, the disk %v, error %v", len(snap.Sandboxes), onDisk, err)
	}
	for _, s := range snap.Sandboxes {
		if s.Instance == "" || s.Tenant != "t" || s.Created.IsZero() {
			t.Errorf("%q is listed without its label: %+v", s.ID, s)
		}
		out, err := b.Destroy(t.Context(), s.Ref)
		ended(t, out, err)
	}
	if onDisk, err := ids(dir); err != nil || len(onDisk) != 0 {
		t.Errorf("after all was destroyed the disk has %v, error %v", onDisk, err)
	}
}

// pause lets real processes get somewhere; nothing depends on where.
func pause(d time.Duration) { <-time.After(d) }

// R27, R29: a destroy that failed is known after a restart too, and never resumed.
func TestAHalfDestroyedSandboxIsStillOneAfterARestart(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a file that cannot be removed")
	}
	dir := shortDir(t)
	b := open(t, dir)
	s := create(t, b, "a", "i1")
	must(t, s, "mkdir -p d && echo x >d/stuck && echo y >gone")
	stuck := filepath.Join(dir, "sandboxes", "a", "home", "d", "stuck")
	if err := immutable(stuck, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = immutable(stuck, false) })
	for range 2 {
		out, err := b.Destroy(t.Context(), s.Ref)
		if out != backend.Unknown || err == nil || !strings.Contains(err.Error(), "home/d/stuck") {
			t.Errorf("destroy: %s, error %v; want unknown and the path that stays", out, err)
		}
		if got, ok := listed(t, b, "a"); !ok || got.Running || got.Ref != s.Ref {
			t.Errorf("a half destroyed sandbox is listed: %v, as %+v; want it stopped", ok, got)
		}
		if _, err := b.Create(t.Context(), spec("a", "i2")); !errors.Is(err, backend.ErrConflict) {
			t.Errorf("create on what is half destroyed: error %v, want a conflict", err)
		}
		if err := killHost(dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(stuck), "..", "gone")); !os.IsNotExist(err) {
		t.Errorf("what could be removed was not: %v", err)
	}
	if err := immutable(stuck, false); err != nil {
		t.Fatal(err)
	}
	if _, ok := listed(t, b, "a"); ok {
		t.Error("a start did not finish a destroy that it could finish")
	}
	if got := create(t, b, "a", "i3"); got.Resumed {
		t.Error("a destroyed sandbox was resumed")
	}
}

// An operator who brings a workspace back from a copy while the host runs has put there what the host does not know.
func TestACreateLeavesADirectoryAloneThatItDidNotMake(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	b := open(t, dir)
	work := filepath.Join(dir, "sandboxes", "a", "home", "work")
	if err := os.MkdirAll(filepath.Dir(work), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(work, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Create(t.Context(), spec("a", "i1")); !errors.Is(err, backend.ErrConflict) || !strings.Contains(err.Error(), "did not make") {
		t.Errorf("create over it: %v", err)
	}
	if got, err := os.ReadFile(work); err != nil || string(got) != "precious" {
		t.Errorf("it holds %q, error %v", got, err)
	}
	if s, ok := listed(t, b, "a"); ok {
		t.Errorf("listed as %+v", s)
	}
	if err := os.RemoveAll(filepath.Join(dir, "sandboxes", "a")); err != nil {
		t.Fatal(err)
	}
	create(t, b, "a", "i2")
}
