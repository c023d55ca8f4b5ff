//go:build linux

package local_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/local"
)

// open returns a Backend on dir, whose host runner ends with the test.
func open(t testing.TB, dir string) *local.Backend {
	t.Helper()
	b, err := local.Open(local.Config{StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Close()
		if _, err := local.Down(context.Background(), local.Config{StateDir: dir}); err != nil {
			t.Errorf("down: %v", err)
		}
		checkLog(t, dir)
	})
	return b
}

// checkLog looks for what a host said when it died, or raced.
func checkLog(t testing.TB, dir string) {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(dir, "host.log"))
	if err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"DATA RACE", "panic: ", "fatal error: "} {
		if strings.Contains(string(log), bad) {
			t.Errorf("the host's log has %q:\n%s", bad, log)
		}
	}
}

func spec(id, instance string) backend.Spec {
	return backend.Spec{Ref: backend.Ref{ID: id, Instance: instance}, Tenant: "t"}
}

func create(t testing.TB, b *local.Backend, id, instance string) backend.Sandbox {
	t.Helper()
	s, err := b.Create(t.Context(), spec(id, instance))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ended wants a stop or destroy to have worked.
func ended(t testing.TB, out backend.Outcome, err error) {
	t.Helper()
	if out != backend.Stopped || err != nil {
		t.Fatalf("outcome %s, error %v; want stopped", out, err)
	}
}

// listed returns one sandbox of the list, or none.
func listed(t testing.TB, b *local.Backend, id string) (backend.Sandbox, bool) {
	t.Helper()
	snap, err := b.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(snap.Sandboxes, func(s backend.Sandbox) bool { return s.ID == id })
	if i < 0 {
		return backend.Sandbox{}, false
	}
	return snap.Sandboxes[i], true
}

func TestASandboxHasAHomeAndATmpOfItsOwn(t *testing.T) {
	t.Parallel()
	s := create(t, open(t, shortDir(t)), "a", "i1")
	must(t, s, `cd && touch "$HOME/x" "$TMPDIR/y" && rm "$(mktemp)" && test "$(pwd)" = "$HOME"`)
	got := must(t, s, "find . | sort")
	if want := ".\n./tmp\n./tmp/y\n./x"; got != want {
		t.Errorf("the home has %q, want %q", got, want)
	}
}

func TestAStrictUmaskOfTheServerLocksNoSandboxOut(t *testing.T) {
	before := syscall.Umask(0o077)
	t.Cleanup(func() { syscall.Umask(before) })
	s := create(t, open(t, shortDir(t)), "a", "i1")
	must(t, s, `touch "$HOME/x" && test "$(umask)" = 0022`)
}

func TestDevNullIsUsableInside(t *testing.T) {
	t.Parallel()
	s := create(t, open(t, shortDir(t)), "a", "i1")
	must(t, s, "echo x >/dev/null && cat /dev/null && head -c 3 /dev/zero | wc -c && head -c 3 /dev/urandom >/dev/null")
}

// R103
func TestNothingOfTheServerReachesASandbox(t *testing.T) {
	t.Setenv("KEEPWELL_CANARY", "canary-in-the-environment")
	dir := shortDir(t)
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("canary-in-a-file"), 0o644); err != nil {
		t.Fatal(err)
	}
	b := open(t, dir)
	s := create(t, b, "a", "i1")
	pid, err := hostOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"env",
		"cat " + filepath.Join(dir, "token"),
		"ls " + dir,
		"cat " + filepath.Join(dir, "host.key"),
		"cat ../meta.json",
		"ls ..",
		"ls ../..",
		"cat /proc/" + itoa(pid) + "/environ /proc/" + itoa(os.Getpid()) + "/environ",
		"ls /proc/" + itoa(pid) + "/fd",
		"ls -l /proc/self/fd",
		"cat /proc/*/environ",
	} {
		out, _ := sh(t, s, line+" 2>&1")
		for _, secret := range []string{"canary", "host.sock", "host.key", "\"instance\"", s.Endpoint.Token} {
			if strings.Contains(strings.ReplaceAll(out, filepath.Join(dir, "host.key"), ""), secret) {
				t.Errorf("%s shows %q: %s", line, secret, out)
			}
		}
	}
}

// R103: the host does not even have what it could give away.
func TestTheHostIsStartedWithoutTheEnvironmentOfTheServer(t *testing.T) {
	rootOnly(t) // another's environment is not shown to others
	t.Setenv("KEEPWELL_CANARY", "canary-in-the-environment")
	dir := shortDir(t)
	open(t, dir)
	pid, err := hostOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile("/proc/" + itoa(pid) + "/environ")
	if err != nil || !strings.Contains(string(raw), "PATH=") || strings.Contains(string(raw), "canary") {
		t.Errorf("the host's environment is %q, error %v; want one with PATH and without the canary", raw, err)
	}
}

// R103: neither on the disk nor in the log does a secret of a sandbox outlive it.
func TestTheEnvironmentOfASandboxIsNotKept(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	b := open(t, dir)
	sp := spec("a", "i1")
	sp.Env = map[string]string{"SECRET": "canary-of-a-tenant", "BYTES": "a\xffb"}
	s, err := b.Create(t.Context(), sp)
	if err != nil {
		t.Fatal(err)
	}
	if got := must(t, s, `echo "$SECRET"; printf %s "$BYTES" | od -An -tx1`); got != "canary-of-a-tenant\n 61 ff 62" {
		t.Errorf("inside the environment is %q", got)
	}
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		if strings.Contains(string(raw), "canary") {
			t.Errorf("%s has a secret of the sandbox", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := b.Stop(t.Context(), s.Ref)
	ended(t, out, err)
	if got := must(t, create(t, b, "a", "i2"), `echo "[$SECRET]"`); got != "[]" {
		t.Errorf("after a resume without it the environment has %q", got)
	}
}

func TestAnotherHomeIsUnreadable(t *testing.T) {
	t.Parallel()
	b := open(t, shortDir(t))
	mine, theirs := create(t, b, "a", "i1"), create(t, b, "b", "i1")
	home := must(t, theirs, "echo secret >file && chmod 777 . file && pwd")
	for _, line := range []string{"cat " + home + "/file", "ls " + home, "echo x >" + home + "/new", "cat ../../b/home/file"} {
		if out, code := sh(t, mine, line+" 2>&1"); code == 0 {
			t.Errorf("%s: succeeded: %s", line, out)
		}
	}
}

func TestStateIsForItsOwnerAlone(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	create(t, open(t, dir), "a", "i1")
	for name, want := range map[string]os.FileMode{
		"": 0o700, "host.sock": 0o600, "host.key": 0o600, "host.log": 0o600, "host.lock": 0o600,
		"sandboxes": 0o711, "sandboxes/a": 0o710, "sandboxes/a/meta.json": 0o600, "sandboxes/a/home": 0o700,
	} {
		fi, err := os.Stat(filepath.Join(dir, name))
		if err != nil || fi.Mode().Perm() != want {
			t.Errorf("%q: mode %v, error %v; want %v", name, fi.Mode().Perm(), err, want)
		}
	}
}

func TestADirectoryThatOthersUseIsNotTakenForState(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "theirs"), nil, 0o600), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end() // so that a host that took it would end
	_, opened := local.Open(local.Config{StateDir: dir, Command: []string{"/bin/false"}})
	_, downed := local.Down(t.Context(), local.Config{StateDir: dir, Command: []string{"/bin/false"}})
	for _, err := range []error{opened, downed, local.Host(ended, local.HostConfig{StateDir: dir})} {
		if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "theirs") {
			t.Errorf("error %v, want one that names the directory and what is in it", err)
		}
	}
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o777 {
		t.Errorf("mode %v, error %v; want it left alone", fi.Mode().Perm(), err)
	}
}
