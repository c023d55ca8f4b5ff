package main

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver/client"
)

func TestDrainRefusesCreatesAndSaysWhoIsBusy(t *testing.T) { // R49
	l := newLab(t)
	s := l.serve()
	api := s.client()
	for _, id := range []string{"idle", "busy"} {
		if _, err := api.Create(t.Context(), client.CreateRequest{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := api.Start(t.Context(), "busy", wire.StartRequest{Cmd: wire.Command{Argv: []string{"sleep", "600"}}}); err != nil {
		t.Fatal(err)
	}
	if got := l.ok("drain", "--status"); !strings.HasPrefix(got, "not draining: 2 sandboxes, 1 busy\n") {
		t.Errorf("status: %s", got)
	}
	got := l.ok("drain")
	for _, want := range []string{"draining since ", ": 2 sandboxes, 1 busy\n", "busy  1 processes run in it"} {
		if !strings.Contains(got, want) {
			t.Errorf("drain says %s, not %q", got, want)
		}
	}
	if got, code := l.run("create", "more"); code != exitFailed || !strings.Contains(got, "being drained") {
		t.Errorf("create ended with %d: %s", code, got)
	}
	l.ok("exec", "idle", "true")
	l.ok("rm", "busy")
	var status client.DrainStatus
	if err := json.Unmarshal([]byte(l.ok("drain", "--json")), &status); err != nil || !status.Draining || status.Sandboxes != 1 || len(status.Busy) != 0 {
		t.Errorf("it says %+v, %v", status, err)
	}
}

func TestAServerThatLingersStopsWhatItCreated(t *testing.T) { // R48
	l := newLab(t)
	s := l.serve("--sweep-every=1s", "--max-linger=1s")
	if _, err := s.client().Create(t.Context(), client.CreateRequest{ID: "box", Pinned: true}); err != nil {
		t.Fatal(err)
	}
	l.ok("drain")
	for end := time.Now().Add(time.Minute); ; {
		status, err := s.client().DrainStatus(t.Context())
		if err != nil || time.Now().After(end) {
			t.Fatalf("it serves %+v, %v", status, err)
		}
		if status.Sandboxes == 0 {
			break
		}
	}
	stopped, err := s.client().List(t.Context(), url.Values{"state": {"stopped"}})
	if err != nil || len(stopped) != 1 || stopped[0].ID != "box" {
		t.Errorf("stopped are %+v, %v", stopped, err)
	}
}
