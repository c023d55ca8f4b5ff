package runner_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/keepwell-go/keepwell/backend/runner"
	"github.com/keepwell-go/keepwell/backend/runner/spawn"
)

// inProtocol is the version of the protocol that runners of these tests speak; unset: the current one.
const inProtocol = "KEEPWELL_TEST_PROTOCOL"

// protocol returns it, 0 for the current one.
func protocol() int {
	n, _ := strconv.Atoi(os.Getenv(inProtocol))
	return n
}

// asRunner makes this test binary the runner: a process of its own, since it waits for all of its children, as a real one does.
const asRunner = "KEEPWELL_TEST_AS_RUNNER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asRunner); dir != "" {
		os.Exit(serve(dir, os.Stdin))
	}
	os.Exit(m.Run())
}

// serve is a runner for tests: sandboxes are added and removed by lines of stdin, and it ends with stdin.
func serve(dir string, stdin io.Reader) int {
	spawner, err := spawn.New(spawn.Config{Reap: true})
	if err != nil {
		fmt.Println("spawn:", err)
		return 1
	}
	server := runner.New(runner.Config{Spawner: spawner, Version: "test", Protocol: protocol()})
	l, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		fmt.Println("listen:", err)
		return 1
	}
	go func() { _ = http.Serve(l, server.Handler()) }()
	fmt.Println("ready")
	lines := bufio.NewScanner(stdin)
	for lines.Scan() {
		var order struct {
			Add    *runner.Sandbox
			Remove string
		}
		err := json.Unmarshal(lines.Bytes(), &order)
		switch {
		case err != nil:
		case order.Add != nil:
			err = server.Add(*order.Add)
		default:
			err = server.Remove(context.Background(), order.Remove)
		}
		fmt.Println("done:", err)
	}
	server.Close()
	return 0
}

// testUID is the first of the uids that sandboxes of tests run as, where the tests run as root. What runs beside these tests has others,
// or a kill of everything inside a sandbox would meet it too.
func testUID() int { return 1_500_000_000 + os.Getpid()<<8%(1<<24) }

func giveHome(t testing.TB, home string, uid int) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chown(home, uid, uid); err != nil {
		t.Fatal(err)
	}
}

// newHome makes a workspace that another user can get to, unlike those of T.TempDir.
func newHome(t testing.TB) string {
	t.Helper()
	home, err := os.MkdirTemp("", "kwh")
	if err == nil {
		err = os.Chmod(home, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	giveHome(t, home, testUID())
	return home
}

// daemon is a runner in a process of its own.
type daemon struct {
	t     testing.TB
	dir   string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
	http  *http.Client
	uid   int // of the sandbox added last, from testUID()
}

func startDaemon(t testing.TB, env ...string) *daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "kwr") // short: the path of a socket has 108 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, dir: dir, cmd: exec.Command("/proc/self/exe")}
	d.cmd.Env = append(append(os.Environ(), asRunner+"="+dir, "GORACE=atexit_sleep_ms=0"), env...) // else the race detector sleeps for a second at the end
	d.cmd.Stderr = os.Stderr
	d.stdin, _ = d.cmd.StdinPipe()
	stdout, _ := d.cmd.StdoutPipe()
	d.out = bufio.NewReader(stdout)
	d.http = &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 64,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, "socket"))
		},
	}}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.stop)
	d.expect("ready")
	return d
}

func (d *daemon) stop() {
	d.http.CloseIdleConnections()
	_ = d.stdin.Close()
	_ = d.cmd.Wait()
	_ = os.RemoveAll(d.dir)
}

func (d *daemon) expect(line string) {
	d.t.Helper()
	got, err := d.out.ReadString('\n')
	if err != nil || got != line+"\n" {
		d.t.Fatalf("the runner said %q, %v; want %q", got, err, line)
	}
}

// add makes a sandbox with a home of its own and returns a client of it.
func (d *daemon) add(id string) *client {
	d.t.Helper()
	home := filepath.Join(d.dir, id)
	if err := os.Mkdir(home, 0o755); err != nil {
		d.t.Fatal(err)
	}
	d.uid++
	giveHome(d.t, home, testUID()+d.uid)
	d.order(map[string]any{"Add": runner.Sandbox{ID: id, Home: home}})
	return &client{t: d.t, http: d.http, base: "http://runner/v1/sandboxes/" + id, home: home}
}

func (d *daemon) remove(id string) {
	d.t.Helper()
	d.order(map[string]any{"Remove": id})
}

func (d *daemon) order(order any) {
	d.t.Helper()
	b, _ := json.Marshal(order)
	if _, err := d.stdin.Write(append(b, '\n')); err != nil {
		d.t.Fatal(err)
	}
	d.expect("done: <nil>")
}
