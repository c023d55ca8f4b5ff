//go:build linux

package local_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/local"
)

func TestReplicasThatOpenAtOnceStartOneHost(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	var opening sync.WaitGroup
	for range 8 {
		opening.Go(func() {
			b, err := local.Open(local.Config{StateDir: dir})
			if err != nil {
				t.Error(err)
				return
			}
			b.Close()
		})
	}
	opening.Wait()
	open(t, dir)
	log, err := os.ReadFile(filepath.Join(dir, "host.log"))
	if n := strings.Count(string(log), "host runner serves"); err != nil || n != 1 {
		t.Errorf("%d hosts were started, error %v; want 1:\n%s", n, err, log)
	}
	if strings.Contains(string(log), local.ErrHosted.Error()) {
		t.Errorf("hosts were started that came too late:\n%s", log)
	}
}

func TestAHostOutlivesItsBackendAndEndsWithDown(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	b := open(t, dir)
	s := create(t, b, "a", "i1")
	must(t, s, "echo kept >file")
	before, err := hostOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	b.Close()
	if _, err := b.List(t.Context()); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("list after Close: error %v, want unavailable", err)
	}
	b = open(t, dir)
	if got, ok := listed(t, b, "a"); !ok || !got.Running {
		t.Errorf("after a restart of the server its sandbox is listed: %v, running: %v", ok, got.Running)
	}
	if n, err := local.Down(t.Context(), local.Config{StateDir: dir}); n != 1 || err != nil {
		t.Errorf("down stopped %d, error %v; want 1", n, err)
	}
	for alive(before) { // it lets go of the directory just before it ends
		pause(time.Millisecond)
	}
	if err := b.Ping(t.Context()); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("ping after down: error %v, want unavailable", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "host.sock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("down leaves the socket: %v", err)
	}
	if got := must(t, create(t, b, "a", "i2"), "cat file"); got != "kept" {
		t.Errorf("after down and a resume the file has %q", got)
	}
}

// alive says whether a process is there and no zombie.
func alive(pid int) bool {
	raw, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "stat"))
	return err == nil && !strings.Contains(string(raw), ") Z ")
}

func TestDownOfNothingIsNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(shortDir(t), "never")
	if n, err := local.Down(t.Context(), local.Config{StateDir: dir}); n != 0 || err != nil {
		t.Errorf("down of a state directory that never was: %d, error %v", n, err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("down made the state directory: %v", err)
	}
}

func TestAHostThatDiedIsStartedAgainByTheNextCall(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	b := open(t, dir)
	for range 3 {
		if err := killHost(dir); err != nil {
			t.Fatal(err)
		}
		if err := b.Ping(t.Context()); !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("ping of a dead host: error %v, want unavailable", err)
		}
		if _, err := b.List(t.Context()); err != nil {
			t.Errorf("list: %v", err)
		}
	}
}

func TestAHostThatDoesNotComeUpIsExplainedByItsLog(t *testing.T) {
	t.Parallel()
	_, err := local.Open(local.Config{StateDir: shortDir(t), Command: []string{"/bin/sh", "-c", "echo no luck today; exit 3"}})
	if err == nil || !strings.Contains(err.Error(), "no luck today") || !strings.Contains(err.Error(), "host.log") {
		t.Errorf("error %v, want one that shows the log", err)
	}
}

func TestAProgramThatOpensWhereItShouldHostIsToldSo(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "runner", "--host", shortDir(t))
	cmd.Env = append(os.Environ(), opens)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "with the arguments `runner --host DIR` it has to call Host") {
		t.Errorf("error %v, output %s", err, out)
	}
}

func TestASecondHostIsRefused(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	open(t, dir)
	if err := local.Host(t.Context(), local.HostConfig{StateDir: dir}); !errors.Is(err, local.ErrHosted) {
		t.Errorf("error %v, want %v", err, local.ErrHosted)
	}
}

func TestAPathThatIsTooLongForASocketWorksAllTheSame(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(shortDir(t), strings.Repeat("long/", 60))
	b := open(t, dir)
	s := create(t, b, "a", "i1")
	if got := must(t, s, "echo here"); got != "here" {
		t.Errorf("inside: %q", got)
	}
	if len(s.Endpoint.Address) > 103 {
		t.Errorf("the endpoint %s has %d bytes", s.Endpoint.Address, len(s.Endpoint.Address))
	}
	open(t, dir)
}

func TestOnlyWhoHasTheKeyIsServed(t *testing.T) {
	t.Parallel()
	b := open(t, shortDir(t))
	s := create(t, b, "a", "i1")
	for _, token := range []string{"", "x", s.Endpoint.Token + "x"} {
		stranger := s
		stranger.Endpoint.Token = token
		for _, path := range []string{"/host/v1/ping", "/host/v1/sandboxes", "/v1/sandboxes/a/processes"} {
			if got := status(t, stranger, path); got != http.StatusUnauthorized {
				t.Errorf("%s with the token %q: %d, want 401", path, token, got)
			}
		}
	}
	if got := status(t, s, "/host/v1/ping"); got != http.StatusOK {
		t.Errorf("with the key: %d", got)
	}
}

func status(t *testing.T, s backend.Sandbox, path string) int {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, s.Endpoint.Network, s.Endpoint.Address)
	}}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://host"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.Endpoint.Token)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func TestConfinementIsSaidAndCanBeRequired(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	b := open(t, dir)
	said := strings.Join(b.Confinement(), "\n")
	strict, err := local.Open(local.Config{StateDir: dir, RequireConfinement: true})
	if err == nil {
		strict.Close()
	}
	if os.Geteuid() == 0 {
		if err != nil || !strings.Contains(said, "uid of its own") {
			t.Errorf("as root: error %v, said:\n%s", err, said)
		}
		return
	}
	if !errors.Is(err, local.ErrConfinement) || !strings.Contains(err.Error(), "a uid of its own") {
		t.Errorf("as an ordinary user: error %v, want one that names what is missing", err)
	}
	if !strings.Contains(said, "share the uid") || !strings.Contains(said, "processes and memory not limited per sandbox") {
		t.Errorf("as an ordinary user it says:\n%s", said)
	}
}

func TestAHostThatMayNotBeUsedIsNotLeftBehind(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root has all the confinement that there is")
	}
	dir := shortDir(t)
	if _, err := local.Open(local.Config{StateDir: dir, RequireConfinement: true}); !errors.Is(err, local.ErrConfinement) {
		t.Fatalf("error %v, want %v", err, local.ErrConfinement)
	}
	pid, err := hostOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	for alive(pid) {
		pause(time.Millisecond)
	}
}

func TestTheRestAsAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs half of all these tests again")
	}
	asOrdinaryUser(t, "^Test(Confinement|Nothing|ASandbox|DevNull|TheEnv|AnotherHome|WhatACrashed|AStartFinishes|AHost(Killed|ThatMayNot|Outlives)|Trees|ADestroy|Random).*$")
}
