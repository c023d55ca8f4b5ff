package main

import (
	"strings"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

func TestPsListsTheOldestFirst(t *testing.T) {
	l := newLab(t)
	s := l.serve()
	l.ok("create", "box")
	for i, id := range []string{"zz", "aa", "mm"} {
		_, _, err := s.client().Start(t.Context(), "box", wire.StartRequest{ID: id, Cmd: wire.Command{Argv: []string{"sleep", "600"}}})
		if err != nil {
			t.Fatal(i, err)
		}
		waitForNextMillisecond()
	}
	got := l.ok("ps", "box")
	if z, a, m := strings.Index(got, "zz"), strings.Index(got, "aa"), strings.Index(got, "mm"); z < 0 || z > a || a > m {
		t.Errorf("the order is %s", got)
	}
}

// waitForNextMillisecond makes what begins later begin later by the clock of the wire, too.
func waitForNextMillisecond() {
	for now := time.Now().UnixMilli(); time.Now().UnixMilli() == now; {
	}
}
