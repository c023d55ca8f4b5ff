package main

import (
	"strings"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/refserver"
)

// R2, R13: what is removed with docker rm -f leaves the registry and the quota at once: no sweep is due for hours, and nobody asks.
func TestARemovedContainerIsNoticedBeforeASweep(t *testing.T) {
	s := newSite(t, "noticed", func(cfg *refserver.Config) { cfg.SweepEvery = 24 * time.Hour })
	s.run()
	for _, id := range []string{"a", "b"} {
		s.create(id).want(t, 201, "")
	}
	until(t, "both are known", func() bool { return s.srv.Len() == 2 })
	askEngine(t, s.engine, "DELETE", "/containers/kw-noticed-a?force=1")
	until(t, "the removed one is not known any more", func() bool { return s.srv.Len() == 1 })
	s.get("a").want(t, 404, "stopped")
	s.get("b").want(t, 200, "")
	s.destroy("a").want(t, 200, "")
	s.destroy("b").want(t, 200, "")
}

// R83, R86: a paused container still has its memory. So it is neither absent nor stopped: it counts, its id is taken, it goes on when
// it is let, and can be destroyed meanwhile.
func TestAPausedContainerCountsAndCanBeDestroyed(t *testing.T) {
	s := newSite(t, "paused")
	for _, id := range []string{"a", "b"} {
		s.create(id).want(t, 201, "")
		askEngine(t, s.engine, "POST", "/containers/kw-paused-"+id+"/pause")
	}
	if got := s.get("a").want(t, 200, ""); got.str("state") != "running" {
		t.Errorf("it is shown as %s", got.raw)
	}
	s.create("a").want(t, 409, "duplicate")
	s.destroy("b").want(t, 200, "")
	askEngine(t, s.engine, "POST", "/containers/kw-paused-a/unpause")
	if got := s.sh("a", "echo goes on").want(t, 200, ""); !strings.Contains(got.raw, "goes on") {
		t.Errorf("a command says %s", got.raw)
	}
	s.destroy("a").want(t, 200, "")
}
