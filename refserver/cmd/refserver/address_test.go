package main

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAClientFindsTheServerThatIsLeftWhicheverOfTwoEnds(t *testing.T) {
	for name, ends := range map[string]int{"the_first": 0, "the_second": 1} {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			t.Run(name+"_by_"+sig.String(), func(t *testing.T) {
				l := newLab(t)
				two := []*server{l.serve(), l.serve()}
				two[ends].end(sig)
				l.ok("ls")
			})
		}
	}
}

func TestAServerThatEndedIsNotLookedForAndOneThatWasKilledIsNamed(t *testing.T) {
	l := newLab(t)
	s := l.serve()
	s.end(syscall.SIGTERM)
	if out, code := l.run("ls"); code != exitFailed || !strings.Contains(out, "no server runs with the state directory "+l.state()) {
		t.Errorf("after SIGTERM: %d %s", code, out)
	}
	s = l.serve()
	s.end(syscall.SIGKILL)
	out, code := l.run("ls")
	for _, want := range []string{strings.TrimPrefix(s.base, "http://"), l.state(), "start one with `refserver`"} {
		if code != exitFailed || !strings.Contains(out, want) {
			t.Errorf("after SIGKILL: %d %s, want a word of %s", code, out, want)
		}
	}
	l.serve()
	if got, err := addresses(l.state()); err != nil || len(got) != 1 {
		t.Errorf("the address of the killed server was not cleared away: %v, %v", got, err)
	}
}

func TestAClientPrefersTheServerThatHasRunLongest(t *testing.T) {
	dir := t.TempDir()
	var want []string
	for i := range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		if _, err := listAddress(dir, ln.Addr()); err != nil {
			t.Fatal(err)
		}
		began := time.Unix(int64(1000+i), 0) // a file system's clock may give all three one time
		if err := os.Chtimes(filepath.Join(dir, serversDir, ln.Addr().String()), began, began); err != nil {
			t.Fatal(err)
		}
		want = append(want, ln.Addr().String())
	}
	if got, err := findServer(dir); err != nil || got != want[0] {
		t.Errorf("found %s, %v, want %s", got, err, want[0])
	}
}

func TestAStateDirectoryThatMayNotBeReadIsNotTakenForOneWithoutAServer(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, serversDir), nil, 0o600); err != nil { // root may read anything but a file as a directory
		t.Fatal(err)
	}
	if _, err := findServer(dir); err == nil || strings.Contains(err.Error(), "no server") || !strings.Contains(err.Error(), serversDir) {
		t.Errorf("the error is %v", err)
	}
}

func TestAServerIsNamedWithOrWithoutItsScheme(t *testing.T) {
	l := newLab(t)
	s := l.serve()
	l.ok("ls", "--server", s.base)
	l.ok("ls", "--server", strings.TrimPrefix(s.base, "http://"))
	s.end(syscall.SIGTERM)
	out, code := l.run("ls", "--server", s.base)
	if code != exitFailed || !strings.Contains(out, s.base) || !strings.Contains(out, "no server answers there") {
		t.Errorf("of a server that is gone: %d %s", code, out)
	}
}

func TestServeSaysHowFarTheMachineConfines(t *testing.T) {
	l := newLab(t)
	s := l.serve()
	_, body, err := s.client().Health(t.Context())
	var health struct{ Confinement []string }
	if err = errors.Join(err, json.Unmarshal(body, &health)); err != nil || len(health.Confinement) < 5 {
		t.Fatalf("health is %s, %v", body, err)
	}
	for _, sentence := range health.Confinement {
		if !strings.Contains(s.stderr.String(), "confinement: "+sentence) {
			t.Errorf("the log does not say %q: %s", sentence, s.stderr)
		}
	}
}
