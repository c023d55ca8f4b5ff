package spawn_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/keepwell-go/keepwell/backend/runner/spawn"
)

const (
	envOwn    = "SPAWN_TEST_OWN"    // names the test that this copy of the test binary is to run
	envInside = "SPAWN_TEST_INSIDE" // what this copy is to try from inside of a sandbox

	// noRaceSleep has a copy with the race detector end at once: it would sleep for a second before.
	noRaceSleep = "GORACE=atexit_sleep_ms=0"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(envInside); what != "" {
		inside(what)
		return
	}
	os.Exit(m.Run())
}

// inside tries something and prints how it went.
func inside(what string) {
	switch what {
	case "listen":
		_, err := net.Listen("tcp", "127.0.0.1:0")
		fmt.Println("listen:", err)
	case "detours":
		tryDetours()
	case "ipc":
		makeIPC()
	case "sleep without a trace":
		os.Clearenv()
		select {}
	}
}

// asEachUser runs body as root and as an ordinary user, each time in a process that owns all of its children.
func asEachUser(t *testing.T, body func(t *testing.T, s *spawn.Spawner)) {
	t.Helper()
	t.Run("root", func(t *testing.T) {
		if !inOwnProcess(t) {
			needRoot(t)
		}
		ownProcess(t, 0, body)
	})
	t.Run("ordinary_user", func(t *testing.T) { ownProcess(t, ordinaryUID, body) })
}

func inOwnProcess(t *testing.T) bool { return os.Getenv(envOwn) == t.Name() }

// ownProcess runs body in another copy of the test binary, so that a Spawner may reap every child there is.
func ownProcess(t *testing.T, uid uint32, body func(t *testing.T, s *spawn.Spawner)) {
	t.Helper()
	if inOwnProcess(t) {
		body(t, newSpawner(t, spawn.Config{Reap: true}))
		return
	}
	var pattern []string
	for part := range strings.SplitSeq(t.Name(), "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run="+strings.Join(pattern, "/"), "-test.v", "-test.count=1", "-test.timeout=300s")
	cmd.Env = []string{
		envOwn + "=" + t.Name(), "PATH=/usr/bin:/bin", "CANARY=in the environment of the runner",
		noRaceSleep,
	}
	cmd.Dir = "/"
	if isRoot() && uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP: "+t.Name()):
		t.Skipf("%s", out)
	case !strings.Contains(string(out), "--- PASS: "+t.Name()):
		t.Fatalf("the test did not run:\n%s", out)
	}
}

// self copies the test binary into the home and returns what to run to try something from inside.
func (c cell) self(what string) string {
	c.tb.Helper()
	data, err := os.ReadFile("/proc/self/exe")
	path := filepath.Join(c.home, "self")
	if err == nil {
		err = os.WriteFile(path, data, 0o755)
	}
	if err != nil {
		c.tb.Fatal(err)
	}
	return noRaceSleep + " " + envInside + "='" + what + "' " + path
}
