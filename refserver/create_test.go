package refserver_test

import (
	"testing"
)

func TestACreatedSandboxCanBeUsedListedStoppedResumedAndDestroyed(t *testing.T) {
	w := newWorld(t)
	made := w.create("a")
	if made.body["resumed"] != false || made.str("token") == "" || made.str("state") != "running" {
		t.Errorf("create answered %s", made.raw)
	}
	w.get("a").want(t, 200, "")
	w.exec("a").want(t, 200, "")
	if got := w.stop("a").want(t, 200, ""); got.str("outcome") != "stopped" {
		t.Errorf("stop answered %s", got.raw)
	}
	w.get("a").want(t, 404, "stopped")
	w.exec("a").want(t, 404, "stopped")
	if again := w.create("a"); again.body["resumed"] != true || again.str("instance") == made.str("instance") {
		t.Errorf("resume answered %s", again.raw)
	}
	if got := w.destroy("a").want(t, 200, ""); got.body["deleted"] != true || got.str("outcome") != "stopped" {
		t.Errorf("destroy answered %s", got.raw)
	}
	w.get("a").want(t, 404, "not_found")
	w.destroy("a").want(t, 404, "not_found")
}
