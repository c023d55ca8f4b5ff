package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// fates answers a request about a sandbox by its id.
func fates(w http.ResponseWriter, r *http.Request) {
	id, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/sandboxes/"), ":")
	body := map[string]any{"id": id, "outcome": id}
	switch id {
	case "mute":
		panic(http.ErrAbortHandler)
	case "unknown":
		w.WriteHeader(http.StatusBadGateway)
		body = map[string]any{"code": "destroy_failed", "error": "it is not known what became of it"}
	case "absent":
		w.WriteHeader(http.StatusNotFound)
		body = map[string]any{"code": "not_found", "error": "no sandbox"}
	}
	_ = json.NewEncoder(w).Encode(body)
}

// R83: whoever ends a sandbox learns whether this command did, it had ended already, or nobody knows.
func TestRmAndStopSayWhatHappenedAndTheExitCodeAgrees(t *testing.T) {
	l := newLab(t)
	srv := httptest.NewServer(http.HandlerFunc(fates))
	t.Cleanup(srv.Close)
	for _, c := range []struct {
		args string
		want []string
		code int
	}{
		{"rm stopped gone", []string{"stopped destroyed\n", "gone was gone\n"}, exitDone},
		{"stop stopped gone", []string{"stopped stopped\n", "gone was not running\n"}, exitDone},
		{"rm --json gone", []string{`{"id":"gone","outcome":"gone"}` + "\n"}, exitDone},
		{"rm stopped absent", []string{"stopped destroyed\n", "refserver: absent: 404 not_found: no sandbox\n"}, exitFailed},
		{"rm stopped unknown", []string{"stopped destroyed\n", "refserver: unknown: 502 destroy_failed: it is not known what became of it\n"}, exitUnknown},
		{"rm mute", []string{"refserver: mute: it is not known whether it was destroyed: "}, exitUnknown},
		{"stop mute", []string{"refserver: mute: it is not known whether it was stopped: "}, exitUnknown},
		{"rm absent unknown", nil, exitUnknown}, // in whichever order
		{"rm unknown absent", nil, exitUnknown},
		{"rm absent mute", nil, exitUnknown},
	} {
		out, code := l.run(append(strings.Fields(c.args), "--server", srv.URL)...)
		if code != c.code {
			t.Errorf("%s ended with %d, want %d: %s", c.args, code, c.code, out)
		}
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s does not say %q: %s", c.args, want, out)
			}
		}
	}
}

func TestAnEmptyIDIsAMistakeOfTheCommandLineAndNothingIsDone(t *testing.T) {
	l := newLab(t)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s was sent", r.Method, r.URL)
	}))
	t.Cleanup(srv.Close)
	for _, args := range [][]string{
		{"create", ""},
		{"rm", ""},
		{"rm", "a", ""}, // nor is a destroyed
		{"stop", "", "a"},
		{"exec", "", "--", "true"},
		{"exec", "-d", "", "true"},
		{"ps", ""},
		{"logs", "", "p"},
		{"logs", "a", ""},
		{"kill", "", "p"},
		{"kill", "a", ""},
		{"cp", os.DevNull, ":file"},
		{"cp", ":file", "-"},
	} {
		args = append([]string{args[0], "--server", srv.URL}, args[1:]...)
		if out, code := l.run(args...); code != exitUsage || !strings.Contains(out, "empty") {
			t.Errorf("%q ended with %d: %s", args, code, out)
		}
	}
}

func TestAnImageIsRefusedOnThisMachineWhichHasNone(t *testing.T) {
	l := newLab(t)
	l.serve()
	if out, code := l.run("create", "--image", "alpine", "a"); code != exitFailed || !strings.Contains(out, `image is "alpine"`) {
		t.Errorf("ended with %d: %s", code, out)
	}
	if got := l.ok("ls", "-a"); strings.Count(got, "\n") != 1 {
		t.Errorf("there is %s", got)
	}
}
