//go:build linux

package local_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend/local"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// oldHost stands for a host runner of another build: it says what it is, and ends when it is told to.
func oldHost(t *testing.T, protocol, runner int) (dir string) {
	t.Helper()
	dir = shortDir(t)
	if err := os.WriteFile(filepath.Join(dir, "host.key"), []byte("k\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", filepath.Join(dir, "host.sock"))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	answer := func(v any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(v) }
	}
	mux.HandleFunc("/host/v1/ping", answer(map[string]any{"protocol": protocol, "version": "old", "runner_protocol": runner, "pid": 42}))
	mux.HandleFunc("/host/v1/down", answer(map[string]any{"stopped": 7}))
	srv := &http.Server{Handler: mux}
	go func() { _ = srv.Serve(ln) }() // ends with Close
	t.Cleanup(func() { srv.Close() })
	return dir
}

func TestAHostOfAnotherProtocolIsNamedWithTheWayOut(t *testing.T) {
	t.Parallel()
	for _, speaks := range []struct {
		host, runner int
		said         string
	}{
		{99, wire.Protocol, "speaks 99/2, this build speaks 1/1 to 2"},
		{1, wire.Protocol + 1, "speaks 1/3, this build speaks 1/1 to 2"},
		{1, wire.OldestProtocol - 1, "speaks 1/0, this build speaks 1/1 to 2"},
	} {
		dir := oldHost(t, speaks.host, speaks.runner)
		_, err := local.Open(local.Config{StateDir: dir})
		if !errors.Is(err, local.ErrProtocol) {
			t.Fatalf("error %v, want %v", err, local.ErrProtocol)
		}
		for _, part := range []string{"refserver down", speaks.said, "version old", "process 42", dir} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error %q lacks %q", err, part)
			}
		}
		if n, err := local.Down(t.Context(), local.Config{StateDir: dir}); n != 7 || err != nil {
			t.Errorf("down of the old host: %d, error %v; want 7", n, err)
		}
	}
}

func TestAHostOfTheSameProtocolFromAnotherBuildIsUsed(t *testing.T) {
	t.Parallel()
	for _, runner := range []int{wire.OldestProtocol, wire.Protocol} {
		b, err := local.Open(local.Config{StateDir: oldHost(t, 1, runner)})
		if err != nil {
			t.Fatal(err)
		}
		b.Close()
	}
}

// A host runner of an older build goes on while the server is replaced: what it runs is worth more than the newest protocol.
func TestAHostWhoseRunnerMintsTheIDsIsUsed(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	host := exec.Command("/proc/self/exe", "runner", "--host", dir, "--protocol", "1")
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- host.Wait() }() // ends with the host
	t.Cleanup(func() { _ = host.Process.Kill() })
	for _, err := os.Stat(filepath.Join(dir, "host.sock")); err != nil; _, err = os.Stat(filepath.Join(dir, "host.sock")) {
		select {
		case err := <-ended:
			t.Fatalf("the host ended: %v", err)
		default:
			pause(time.Millisecond)
		}
	}
	b, err := local.Open(local.Config{StateDir: dir, Command: []string{"/bin/false"}}) // nothing else is to be started
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s := create(t, b, "a", "i1")
	if got := must(t, s, "echo $((6*7))"); got != "42" {
		t.Errorf("inside: %q", got)
	}
	job := wire.StartRequest{ID: "proc_aaaaaaaaaaaaaaaaaaaaaaaaaa", Cmd: wire.Command{Argv: []string{"sleep", "1000"}}}
	first, again := started(t, s, job), started(t, s, job)
	if first.ID == job.ID || again.ID != first.ID || !again.Reattached || first.Reattached {
		t.Errorf("started %+v, then %+v", first, again)
	}
	if n, err := b.Down(t.Context()); n != 1 || err != nil {
		t.Errorf("down stopped %d, error %v; want 1", n, err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the host ended with %v", err)
	}
}

func TestAHostOfAProtocolThatIsNotSpokenIsRefused(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{-1, wire.Protocol + 1} {
		err := local.Host(t.Context(), local.HostConfig{StateDir: shortDir(t), Protocol: protocol})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("local: host: protocol %d is not among 1 to 2", protocol)) {
			t.Errorf("protocol %d: error %v", protocol, err)
		}
	}
}
