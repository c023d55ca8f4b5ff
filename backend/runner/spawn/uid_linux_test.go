package spawn_test

import (
	"testing"

	"github.com/keepwell-go/keepwell/backend/runner/spawn"
)

// What a process that died has started is known to nobody but by its uid.
func TestKillAllReachesWhatAnotherConfinementOfTheUIDStarted(t *testing.T) {
	needRoot(t)
	s := newSpawner(t, spawn.Config{})
	limits := sandbox(t, spawn.Limits{})
	old, fresh := confineAs(t, s, limits), confineAs(t, s, limits)
	_, r := old.sh("main", "setsid env -i /bin/sh -c 'echo; exec sleep 1000' & sleep 1000")
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := fresh.KillAll(within(t)); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("something still writes: %d bytes, %v", n, err)
	}
}
