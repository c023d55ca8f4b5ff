package main

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/refserver/binding"
	"github.com/keepwell-go/keepwell/refserver/internal/postgrestest"
)

// secretWord is a password that must not be seen anywhere.
const secretWord = "hunter2-%41"

func TestBindingsLieInAFileOfTheOwnerByDefault(t *testing.T) {
	l := newLab(t)
	s := l.serve()
	path := filepath.Join(l.state(), storeFile)
	for _, file := range []string{path, path + "-wal", path + "-shm"} {
		info, err := os.Stat(file)
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%s has mode %v, %v, want -rw-------", file, info.Mode(), err)
		}
	}
	if s.end(syscall.SIGTERM) != 0 {
		t.Errorf("the server ended badly: %s", s.stderr)
	}
	if left, err := filepath.Glob(path + "-*"); err != nil || len(left) > 0 {
		t.Errorf("a server that was told to end leaves %v, %v", left, err)
	}
}

func TestAStoreInMemoryLeavesNoFile(t *testing.T) {
	l := newLab(t)
	s := l.serve("--store=memory")
	if _, err := os.Stat(filepath.Join(l.state(), storeFile)); !os.IsNotExist(err) {
		t.Errorf("there is a file: %v", err)
	}
	if !strings.Contains(s.stderr.String(), "kept in memory") {
		t.Errorf("nothing is said of what that costs: %s", s.stderr)
	}
}

func TestAStoreThatCannotBeUsedIsRefusedAtStart(t *testing.T) {
	l := newLab(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := ln.Addr().String() // from when it is closed
	ln.Close()
	damaged := filepath.Join(l.home, "damaged.db")
	if err := os.WriteFile(damaged, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		url  string
		code int
		says []string
	}{
		"something else":    {"redis://me:" + secretWord + "@host/0", exitUsage, []string{"--store is none of memory, sqlite:/PATH"}},
		"a bare path":       {"/var/lib/bindings.db", exitUsage, []string{"--store is none of memory, sqlite:/PATH"}},
		"a relative path":   {"sqlite:bindings.db", exitUsage, []string{"--store sqlite:bindings.db", "must be absolute"}},
		"no such directory": {"sqlite:/no/such/dir/b.db", exitFailed, []string{"--store", "/no/such/dir/b.db", "no such file"}},
		"a damaged file":    {"sqlite:" + damaged, exitFailed, []string{"--store", damaged, "is damaged, or is no database", "move"}},
		"a garbled URL":     {"postgres://me:" + secretWord + "%zz@host:port/db", exitFailed, []string{"--store", "the URL cannot be read"}},
		"nobody there":      {"postgres://me:" + secretWord + "@" + nobody + "/db?connect_timeout=2", exitFailed, []string{"--store", nobody, "refused"}},
	} {
		l.env = []string{storeVariable + "=" + c.url}
		out, code := l.run("serve", "--listen=127.0.0.1:0")
		if code != c.code {
			t.Errorf("%s: ended with %d, want %d: %s", name, code, c.code, out)
		}
		for _, part := range c.says {
			if !strings.Contains(out, part) {
				t.Errorf("%s: %q is not in %s", name, part, out)
			}
		}
		if strings.Contains(out, "no server answers") {
			t.Errorf("%s: a hint for clients: %s", name, out)
		}
		if strings.Contains(out, "hunter2") {
			t.Errorf("%s: the password was printed: %s", name, out)
		}
	}
}

func TestAPasswordAmongTheArgumentsIsWarnedOf(t *testing.T) {
	l := newLab(t)
	const url = "postgres://me:" + secretWord + "@127.0.0.1:1/db"
	out, _ := l.run("serve", "--listen=127.0.0.1:0", "--store="+url)
	if !strings.Contains(out, storeVariable) || strings.Contains(out, "hunter2") {
		t.Errorf("with the password as an argument it says %s", out)
	}
	l.env = []string{storeVariable + "=" + url}
	if out, _ := l.run("serve", "--listen=127.0.0.1:0"); strings.Contains(out, "seen by all users") {
		t.Errorf("with the password in the environment it says %s", out)
	}
}

func TestHelpAdvisesTheVariableForSecrets(t *testing.T) {
	l := newLab(t)
	if out := l.ok("serve", "--help"); !strings.Contains(out, "--store") || !strings.Contains(out, storeVariable) {
		t.Errorf("help says %s", out)
	}
}

func TestAServerWithPostgresHandsThePasswordToNobody(t *testing.T) {
	if os.Getenv(postgrestest.Variable) != "" {
		t.Skip("the test looks for a password of its own")
	}
	db, err := postgrestest.New(t.Context())
	if err != nil {
		postgrestest.SkipIfMissing(t, err)
	}
	t.Cleanup(func() {
		if err := db.Remove(); err != nil {
			t.Error(err)
		}
	})
	l := newLab(t)
	l.env = []string{storeVariable + "=" + db.URL()}
	s := l.serve()
	l.env = nil
	said := l.ok("create", "box") + l.ok("exec", "box", "env")
	if said += s.stdout + s.stderr.String(); strings.Contains(said, db.Password) || strings.Contains(said, storeVariable) {
		t.Errorf("the store is spoken of in %s", said)
	}
	hosts := 0
	for _, pid := range pidsOf(t, l.state()) {
		environ, err := os.ReadFile(filepath.Join("/proc", pid, "environ"))
		if hosts++; err != nil || strings.Contains(string(environ), storeVariable) {
			t.Errorf("the host runner has the variable, %v: %q", err, environ)
		}
	}
	if runtime.GOOS == "linux" && hosts != 1 {
		t.Errorf("%d host runners were looked at", hosts)
	}
}

// pidsOf returns the host runners of a state directory.
func pidsOf(t *testing.T, dir string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		args, _ := os.ReadFile(path) // it may have ended
		if strings.Contains(string(args), "runner\x00--host\x00"+dir) || strings.Contains(string(args), "--host="+dir) {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

func TestOwnersDoNotSeeEachOthersBindings(t *testing.T) {
	store, ref := binding.NewMemory(), backend.Ref{ID: "a", Instance: "i"}
	of := func(be, owner string) binding.Store {
		return (&serveCmd{Backend: be, dockerFlags: dockerFlags{Owner: owner}}).ours(store, "the key")
	}
	mine := of(backendDocker, "mine")
	if err := mine.Bind(t.Context(), ref, "proc_x", "minted"); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]binding.Store{"another": of(backendDocker, "other"), "no": of(backendDocker, ""), "a local": of(backendLocal, "")} {
		if got, err := s.Bound(t.Context(), ref, "proc_x"); got != "" || err != nil {
			t.Errorf("%s owner reads %q, %v", name, got, err)
		}
		if err := s.Forget(t.Context(), ref); err != nil {
			t.Error(err)
		}
	}
	if got, err := of(backendDocker, "mine").Bound(t.Context(), ref, "proc_x"); got != "minted" || err != nil {
		t.Errorf("the owner reads %q, %v", got, err)
	}
	derived := dockerFlags{}.owner("the key") // as a replica may be told it
	if err := of(backendDocker, derived).Bind(t.Context(), ref, "proc_y", "minted"); err != nil {
		t.Fatal(err)
	}
	if got, err := of(backendDocker, "").Bound(t.Context(), ref, "proc_y"); got != "minted" || err != nil {
		t.Errorf("by the name that is derived, the owner reads %q, %v", got, err)
	}
}
