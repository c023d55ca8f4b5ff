package runner_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/backend/runner"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// legacy is the version of runners that mint ids themselves.
const legacy = 1

var uuid7 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// minted says whether an id looks like those that the runner of these tests makes.
func minted(id string) bool {
	if protocol() == legacy {
		return uuid7.MatchString(id)
	}
	return strings.HasPrefix(id, "proc_") && len(id) == len("proc_")+26
}

// runs starts n background processes and returns their ids, in the order of the starts.
func (w *world) runs(n int) (ids []string) {
	w.t.Helper()
	for range n {
		ids = append(ids, w.started(wire.StartRequest{Cmd: argv("true")}).ID)
	}
	return ids
}

func TestALegacyRunnerNeverMintsAnIDAgain(t *testing.T) { // R107
	first := newWorldIn(t, legacy)
	first.clock.Set(time.Date(2026, 5, 1, 12, 0, 0, 123_456_789, time.UTC))
	old := first.runs(20)
	first.server.Close()

	second := newWorldIn(t, legacy)
	second.clock.Set(first.clock.Now().Add(time.Millisecond)) // a restart takes longer than that
	all := append(slices.Clone(old), second.runs(20)...)
	for i, id := range all {
		if !uuid7.MatchString(id) {
			t.Errorf("id %q is no UUID of version 7 in lower case", id)
		}
		if i > 0 && id <= all[i-1] {
			t.Errorf("id %d is %q, which does not sort after %q", i, id, all[i-1])
		}
		if i >= len(old) {
			second.refused("GET", "/processes/"+old[i-len(old)], nil, 404, wire.CodeNotFound)
		}
	}
	if want := "019de368-f67b-774f-"; !strings.HasPrefix(old[0], want) {
		t.Errorf("the first id is %q; the time of its start begins %s", old[0], want)
	}
}

func TestALegacyRunnerMintsInOrderWhileTheClockIsSetBack(t *testing.T) { // R107
	c := clock.NewMock()
	c.Set(time.UnixMilli(1_800_000_000_000))
	m := runner.NewMinter(c)
	last := m.Mint()
	for range 10_000 { // more than a millisecond has room for
		id := m.Mint()
		if !uuid7.MatchString(id) || id <= last {
			t.Fatalf("%q comes after %q", id, last)
		}
		last = id
	}
	c.Set(time.UnixMilli(1_700_000_000_000))
	if id := m.Mint(); id <= last {
		t.Errorf("after the clock was set back %q comes after %q", id, last)
	}
	c.Set(time.UnixMilli(1_900_000_000_000))
	if id := m.Mint(); id[:13] != "01ba60d3-3800" {
		t.Errorf("id %q does not begin with its time", id)
	}
}

func TestALegacyRunnerKnowsAProcessByTheIDThatItMintedOnly(t *testing.T) { // R63
	w := newWorldIn(t, legacy)
	assigned := "proc_aaaaaaaaaaaaaaaaaaaaaaaaaa"
	s := w.started(wire.StartRequest{ID: assigned, Cmd: argv("cat"), Tag: "mine"})
	if s.ID == assigned || !uuid7.MatchString(s.ID) || s.Reattached {
		t.Fatalf("started %+v", s)
	}
	for _, r := range []struct{ method, path, body string }{
		{"GET", "", ""},
		{"DELETE", "", ""},
		{"GET", "/output", ""},
		{"POST", ":kill", ""},
		{"POST", ":signal", `{"signal":"TERM"}`},
		{"POST", "/stdin", `{"data":"x"}`},
	} {
		w.refused(r.method, "/processes/"+assigned+r.path, r.body, 404, wire.CodeNotFound)
	}
	if p := w.process(s.ID); p.ID != s.ID || !p.Running || p.Tag != "mine" {
		t.Errorf("process %+v", p)
	}
	w.header = map[string]string{wire.ProcessIDHeader: "proc_bbbbbbbbbbbbbbbbbbbbbbbbbb"}
	e := w.stream("POST", "/exec", wire.StartRequest{Cmd: argv("sleep", "1000")})
	start := e.next()
	want := []string{s.ID, start.ID}
	var got []string
	for _, p := range w.list() {
		got = append(got, p.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the list has %v, want %v", got, want)
	}
	var killed wire.Killed
	w.ok("DELETE", "/processes/"+start.ID, nil, &killed)
	if !killed.Killed || killed.ID != start.ID {
		t.Errorf("killed %+v", killed)
	}
	w.refused("DELETE", "/processes/1234", nil, 400, wire.CodePIDNotAccepted) // R60
}

func TestALegacyRunnerStartsAKeyOnce(t *testing.T) { // R75
	c := newWorldIn(t, legacy).client
	c.header = map[string]string{wire.ProcessIDHeader: "job"}
	answers := make([]wire.Started, 16)
	var starts sync.WaitGroup
	for i := range answers {
		starts.Go(func() {
			c.ok("POST", "/processes", wire.StartRequest{Cmd: line("echo ran >> runs; sleep 1000")}, &answers[i])
		})
	}
	starts.Wait()
	firsts := 0
	for _, s := range answers {
		if s.ID != answers[0].ID || s.PID != answers[0].PID || s.PID == 0 {
			t.Errorf("one was told %+v, another %+v", answers[0], s)
		}
		if !s.Reattached {
			firsts++
		}
	}
	if list := c.list(); firsts != 1 || len(list) != 1 {
		t.Errorf("%d of them started something, and the list has %+v", firsts, list)
	}
}

func TestALegacyRunnerAttachesAnExecOfAKeyThatItKnows(t *testing.T) { // R75
	w := newWorldIn(t, legacy)
	req := wire.StartRequest{Cmd: line("echo ran | tee -a runs; sleep 1000")}
	w.header = map[string]string{wire.ProcessIDHeader: "job"}
	first := w.stream("POST", "/exec", req)
	start, said := first.next(), first.next()
	first.close()
	w.header = nil
	req.ID = "job" // the body may name the key as well
	second := w.stream("POST", "/exec", req)
	if ev := second.next(); ev.ID != start.ID || ev.PID != start.PID {
		t.Errorf("attached to %+v, want %+v", ev, start)
	}
	if ev := second.next(); ev.Data != "ran\n" || ev.Offset != 0 || said.Data != ev.Data {
		t.Errorf("the second was told %+v, the first %+v", ev, said)
	}
	w.ok("DELETE", "/processes/"+start.ID, nil, nil)
	if last := second.rest().last; last.Signal == nil || *last.Signal != "SIGKILL" {
		t.Errorf("exit %+v", last)
	}
	if s := w.started(req); !s.Reattached || s.ID != start.ID {
		t.Errorf("after its end: %+v", s)
	}
	unnamed := w.started(wire.StartRequest{Cmd: argv("true")})
	for _, id := range []string{start.ID, unnamed.ID} {
		if s := w.started(wire.StartRequest{ID: id, Cmd: argv("true")}); s.Reattached || s.ID == id {
			t.Errorf("a key that looks like an id of this runner: %+v", s)
		}
	}
}

func TestALegacyRunnerForgetsAKeyWithItsProcess(t *testing.T) { // R65
	w := newWorldIn(t, legacy)
	req := wire.StartRequest{ID: "job", Cmd: argv("true")}
	first := w.started(req)
	w.ended(first.ID)
	for range wire.MaxFinished {
		w.server.Finish("a", runner.NewOutput())
	}
	w.refused("GET", "/processes/"+first.ID, nil, 404, wire.CodeNotFound)
	if s := w.started(req); s.Reattached || s.ID == first.ID {
		t.Errorf("a start of a key whose process was forgotten: %+v", s)
	}
}

func TestWhatIsNewerThanALegacyRunnerIsNotSentByIt(t *testing.T) {
	for protocol, want := range map[int]struct {
		health   int
		activity bool
	}{0: {wire.Protocol, true}, wire.Protocol: {wire.Protocol, true}, legacy: {legacy, false}} {
		w := newWorldIn(t, protocol)
		var act map[string]any
		w.ok("GET", "/activity", nil, &act)
		if said, ok := act["protocol"]; ok != want.activity || ok && said != float64(want.health) {
			t.Errorf("protocol %d: activity %v", protocol, act)
		}
		var health wire.Health
		root := *w.client
		root.base = strings.TrimSuffix(w.base, "/v1/sandboxes/a")
		root.ok("GET", "/health", nil, &health)
		if health.Protocol != want.health {
			t.Errorf("protocol %d: health %+v", protocol, health)
		}
	}
}

func TestAProtocolThatIsNotSpokenIsMisuse(t *testing.T) {
	for _, protocol := range []int{-1, wire.Protocol + 1} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "runner: protocol") {
					t.Errorf("protocol %d: panic %q", protocol, text)
				}
			}()
			runner.New(runner.Config{Protocol: protocol})
			t.Errorf("protocol %d is accepted", protocol)
		}()
	}
}

// What assigns no ids goes on under a legacy runner as under a current one: processes, their streams and their ends.
func TestALegacyRunnerDoesTheSame(t *testing.T) {
	switch {
	case testing.Short():
		t.Skip("runs many of these tests once more")
	case protocol() != 0:
		t.Skip("this is that run")
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.v", "-test.run",
		"^Test(EveryRoute|StdinOf|Signal|Kill|Exec|OutputOfA|OutputIs|Timeout|TheIdle|Work|ARunning|AnExec|AReader|Close|ARemove|AStream|Nothing)")
	cmd.Env = append(os.Environ(), inProtocol+"=1", "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "\n--- PASS") < 21 {
		t.Errorf("under a legacy runner: %v\n%s", err, out)
	}
}
