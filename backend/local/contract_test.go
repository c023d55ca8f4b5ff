//go:build linux

package local_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/backendtest"
	"github.com/keepwell-go/keepwell/backend/local"
)

// R13, R16, R27, R29, R34, R35, R81, R83, R85, R101, R104, R105, R112: the contract that all backends keep. Each owner is a state
// directory of its own, each handle a Backend on it.
func TestContract(t *testing.T) {
	t.Parallel()
	backendtest.Run(t, func(t *testing.T) backendtest.Harness {
		t.Parallel()
		return newMachine(t).harness()
	})
}

// The same as an ordinary user, where sandboxes have no uids of their own: the cases in which files are removed and processes found and
// ended, which is done in other ways then. The rest is the same code for everybody.
func TestContractAsAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs half of TestContract again")
	}
	asOrdinaryUser(t, "^TestContract$/^(Create|Stopped|Destroy|Killed|Nothing|Failed|Sandboxes|Ends|Stale|Replicas)")
}

// ordinary is a uid that nobody has. That of nobody would be everybody's: other programs run, and kill, under it.
const ordinary = 64_321

// asOrdinaryUser runs tests of this program again as a user who is not root.
func asOrdinaryUser(t *testing.T, tests string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("this is an ordinary user already")
	}
	if !strings.Contains(os.Getenv("KEEPWELL_REQUIRE"), "user") {
		t.Skip("the suite once more as an ordinary user takes minutes: set KEEPWELL_REQUIRE=user")
	}
	dir := shortDir(t)
	if err := os.Chown(dir, ordinary, ordinary); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run", tests, "-test.v")
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir, "HOME=" + dir, noRaceSleep}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS")) {
		t.Errorf("as an ordinary user: %v\n%s", err, out)
	}
}

// shortDir returns a directory whose path leaves room for that of a socket.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// machine is the engine of the contract: a directory with a state directory for each owner.
type machine struct {
	t   *testing.T
	dir string

	mu     sync.Mutex // guards the fields below
	owners map[string]bool
	open   []*local.Backend
}

func newMachine(t *testing.T) *machine {
	m := &machine{t: t, dir: shortDir(t), owners: make(map[string]bool)}
	t.Cleanup(m.close)
	return m
}

func (m *machine) close() {
	for _, b := range m.open {
		b.Close()
	}
	for owner := range m.owners {
		if _, err := local.Down(context.Background(), local.Config{StateDir: m.state(owner)}); err != nil {
			m.t.Errorf("down %s: %v", owner, err)
		}
		checkLog(m.t, m.state(owner))
	}
}

func (m *machine) state(owner string) string { return filepath.Join(m.dir, owner) }

func (m *machine) harness() backendtest.Harness {
	h := backendtest.Harness{
		New: m.new, WriteFile: writeFile, ReadFile: readFile,
		Break: m.breakSockets, Hang: m.hang, FailDestroy: m.failDestroy, FailCreate: m.failCreate, Fill: m.fill,
		Kill:      func(_ context.Context, _ backend.Backend, s backend.Sandbox) error { return m.killHosts() },
		Restart:   func(context.Context) error { return m.killHosts() },
		Leftovers: func(_ context.Context, owner string) ([]string, error) { return ids(m.state(owner)) },
		Cannot:    map[string]string{},
		Settle:    300 * time.Millisecond,
	}
	if os.Geteuid() != 0 {
		h.FailCreate, h.Cannot["FailCreate"] = nil, "only root can take the homes from a host"
		h.Fill, h.Cannot["Fill"] = nil, "only root can make a small file system"
	}
	return h
}

func (m *machine) new(owner string) (backend.Backend, error) {
	b, err := local.Open(local.Config{StateDir: m.state(owner)})
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owners[owner] = true
	m.open = append(m.open, b)
	return b, nil
}

// each does something to every state directory and returns what undoes all of it.
func (m *machine) each(do func(state string) (undo func() error, err error)) (func() error, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var undos []func() error
	all := func() (err error) {
		for _, undo := range undos {
			err = errors.Join(err, undo())
		}
		return err
	}
	for owner := range m.owners {
		undo, err := do(m.state(owner))
		if err != nil {
			return all, errors.Join(err, all())
		}
		undos = append(undos, undo)
	}
	return all, nil
}

// breakSockets takes the sockets away, and keeps what a Backend starts then from coming up.
func (m *machine) breakSockets(context.Context) (func() error, error) {
	undo, err := m.each(func(state string) (func() error, error) {
		from, to := filepath.Join(state, "host.sock"), filepath.Join(state, "host.away")
		return func() error { return os.Rename(to, from) }, os.Rename(from, to)
	})
	for _, b := range m.open {
		b.Disconnect()
	}
	return undo, err
}

func (m *machine) hang(context.Context) (func() error, error) {
	return m.each(func(state string) (func() error, error) {
		pid, err := hostOf(state)
		if err != nil {
			return nil, err
		}
		mend := func() error { return unix.Kill(pid, unix.SIGCONT) }
		return mend, errors.Join(unix.Kill(pid, unix.SIGSTOP), awaitStopped(pid))
	})
}

// awaitStopped returns when every thread of a process has stopped: the signal takes a while to reach them all.
func awaitStopped(pid int) error {
	for {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil || len(tasks) == 0 {
			return fmt.Errorf("process %d is not there: %w", pid, err)
		}
		moving := false
		for _, task := range tasks {
			b, err := os.ReadFile(task)
			moving = moving || err == nil && !bytes.Contains(b, []byte(") T "))
		}
		if !moving {
			return nil
		}
	}
}

func (m *machine) killHosts() error {
	_, err := m.each(func(state string) (func() error, error) { return nil, killHost(state) })
	return err
}

// failDestroy makes every home immutable, or as an ordinary user closes the directory that they are in.
func (m *machine) failDestroy(context.Context) (func() error, error) {
	return m.each(func(state string) (func() error, error) {
		if os.Geteuid() != 0 {
			dir := filepath.Join(state, "sandboxes")
			return func() error { return os.Chmod(dir, 0o711) }, os.Chmod(dir, 0o511)
		}
		homes, err := filepath.Glob(filepath.Join(state, "sandboxes", "*", "home"))
		if err != nil {
			return nil, err
		}
		for _, home := range homes {
			if err := immutable(home, true); err != nil {
				return nil, err
			}
		}
		return func() (err error) {
			for _, home := range homes {
				err = errors.Join(err, immutable(home, false))
			}
			return err
		}, nil
	})
}

// failCreate takes the mounted homes away from the host, so that a create fails after it made its directories.
func (m *machine) failCreate(context.Context) (func() error, error) {
	return m.each(func(state string) (func() error, error) {
		at, err := mountOf(state)
		if err != nil {
			return nil, err
		}
		back := func() error { return inMountsOf(state, "mount", "--bind", filepath.Join(state, "sandboxes"), at) }
		return back, inMountsOf(state, "umount", at)
	})
}

// fill puts the sandboxes on a file system that is full.
func (m *machine) fill(context.Context) (func() error, error) {
	return m.each(func(state string) (func() error, error) {
		dir := filepath.Join(state, "sandboxes")
		if err := inMountsOf(state, "mount", "-t", "tmpfs", "-o", "size=64k,mode=0711", "tmpfs", dir); err != nil {
			return nil, err
		}
		full := inMountsOf(state, "sh", "-c", `head -c 1M /dev/zero >"$0" 2>/dev/null; rm -f "$0.none"`, filepath.Join(dir, ".full"))
		return func() error { return inMountsOf(state, "umount", dir) }, full
	})
}
