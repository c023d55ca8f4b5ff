package backendtest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/backendtest"
	"github.com/keepwell-go/keepwell/backend/memory"
)

// asUser names the harness that TestRunAsAUserDoes runs in a process of its own.
const asUser = "KEEPWELL_BACKENDTEST_HARNESS"

// bare is a harness that can do nothing but open handles, and excuses itself for the rest.
func bare() backendtest.Harness {
	engine := memory.NewEngine(memory.Config{})
	h := backendtest.Harness{
		New:    func(owner string) (backend.Backend, error) { return engine.Open(owner), nil },
		Cannot: map[string]string{"Owners": "this engine is one owner's"},
	}
	for _, name := range []string{"WriteFile", "ReadFile", "Break", "Hang", "FailDestroy", "FailCreate", "Fill", "Kill", "Restart", "Leftovers"} {
		h.Cannot[name] = "this engine cannot " + name
	}
	return h
}

func userHarnesses() map[string]func() backendtest.Harness {
	with := func(change func(h *backendtest.Harness)) func() backendtest.Harness {
		return func() backendtest.Harness {
			h := bare()
			change(&h)
			return h
		}
	}
	return map[string]func() backendtest.Harness{
		"bare":     bare,
		"no-new":   with(func(h *backendtest.Harness) { h.New = nil }),
		"hasty":    with(func(h *backendtest.Harness) { h.Patience = -1 }),
		"silent":   with(func(h *backendtest.Harness) { delete(h.Cannot, "Break") }),
		"empty":    with(func(h *backendtest.Harness) { h.Cannot["Marker"] = "" }),
		"misspelt": with(func(h *backendtest.Harness) { h.Cannot["Braek"] = "a slip" }),
		"no-engine": with(func(h *backendtest.Harness) {
			h.New = func(string) (backend.Backend, error) { return nil, errors.New("no engine here") }
		}),
		"panics": with(func(h *backendtest.Harness) {
			h.New = func(string) (backend.Backend, error) { panic("harness on fire") }
		}),
		"unpinnable": with(func(h *backendtest.Harness) {
			open := h.New
			h.New = func(owner string) (backend.Backend, error) {
				b, err := open(owner)
				return struct{ backend.Backend }{b}, err
			}
		}),
	}
}

func TestRunAsAUserDoes(t *testing.T) {
	name := os.Getenv(asUser)
	if name == "" {
		t.Skip("run by TestRunReportsToGoTest")
	}
	backendtest.Run(t, func(*testing.T) backendtest.Harness { return userHarnesses()[name]() })
}

// What go test shows to the author of a backend.
func TestRunReportsToGoTest(t *testing.T) {
	for name, want := range map[string][]string{
		"bare": {
			"PASS", "--- PASS: TestRunAsAUserDoes/SixteenCreatesHaveOneWinner",
			"--- SKIP: TestRunAsAUserDoes/ListFailsWhileTheEngineIsDown", "needs Break: this engine cannot Break",
			"--- SKIP: TestRunAsAUserDoes/OwnersSweepSideBySide", "needs Owners: this engine is one owner's",
		},
		"no-new":     {"FAIL", "backendtest: Harness.New is nil"},
		"hasty":      {"FAIL", "backendtest: negative Settle 0s or Patience -1ns"},
		"silent":     {"FAIL", "backendtest: Harness.Break is missing and Cannot has no reason for it"},
		"empty":      {"FAIL", "backendtest: Harness.Marker is missing and Cannot has no reason for it"},
		"misspelt":   {"FAIL", `backendtest: Cannot names "Braek", which is no ability`},
		"no-engine":  {"FAIL", `open a backend for owner "backendtest": no engine here`},
		"panics":     {"FAIL", "panic: harness on fire"},
		"unpinnable": {"FAIL", "has no Mark", "R105: a pin holds only where it was set", "--- PASS: TestRunAsAUserDoes/PingAnswers"},
	} {
		t.Run(name, func(t *testing.T) {
			out := runAs(t, name)
			for _, words := range want {
				if !strings.Contains(out, words) {
					t.Errorf("go test does not say %q:\n%s", words, out)
				}
			}
			if strings.Contains(out, "--- FAIL") != (want[0] == "FAIL") {
				t.Errorf("go test should say %s:\n%s", want[0], out)
			}
		})
	}
}

// runAs runs the suite against a named harness in another process.
func runAs(t *testing.T, name string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestRunAsAUserDoes$", "-test.v")
	cmd.Env = append(os.Environ(), asUser+"="+name)
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return string(out)
}

// The table is made to be read: by people, and by programs that choose from it.
func TestCasesAreNamedExplainedAndUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range backendtest.Cases() {
		if c.Name == "" || c.Rule == "" || c.Why == "" || strings.ContainsAny(c.Name, " /") {
			t.Errorf("case %+v lacks a name without spaces, a rule or a reason", c)
		}
		if seen[c.Name] {
			t.Errorf("%s is there twice", c.Name)
		}
		seen[c.Name] = true
	}
}

// A case mends what it broke and destroys what it made, whether it passes or not, so that cases may share an engine.
func TestCasesLeaveTheEngineAsTheyFoundIt(t *testing.T) {
	h := harness(plain)
	open, owners := h.New, new(sync.Map)
	h.New = func(owner string) (backend.Backend, error) {
		owners.Store(owner, true)
		b, err := open(owner)
		return forgetful{b.(*memory.Backend)}, err
	}
	for _, c := range backendtest.Cases() {
		_ = c.Check(t.Context(), h)
	}
	used := 0
	for owner := range owners.Range {
		used++
		b, err := open(owner.(string))
		if err != nil {
			t.Fatal(err)
		}
		if snap, err := b.List(t.Context()); err != nil || len(snap.Sandboxes) != 0 {
			t.Errorf("owner %q has %d sandboxes left, error %v", owner, len(snap.Sandboxes), err)
		}
	}
	if used < len(backendtest.Cases()) {
		t.Errorf("%d cases used %d owners, want one each at least", len(backendtest.Cases()), used)
	}
}

// forgetful fails many cases in their middle.
type forgetful struct{ *memory.Backend }

func (f forgetful) Ping(context.Context) error { return nil }

func (f forgetful) Stop(context.Context, backend.Ref) (backend.Outcome, error) {
	return backend.Gone, nil
}

func TestPatienceBoundsACase(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	h := harness(func(b *memory.Backend) backend.Backend { return silent{b, release} })
	h.Patience = time.Millisecond
	for _, c := range backendtest.Cases() {
		if c.Name != "PingAnswers" {
			continue
		}
		if err := c.Check(t.Context(), h); err == nil || !strings.Contains(err.Error(), "still running after 1ms") {
			t.Errorf("got %v, want the patience to have ended", err)
		}
	}
}

// silent never answers a ping.
type silent struct {
	*memory.Backend
	release <-chan struct{}
}

func (s silent) Ping(context.Context) error {
	<-s.release
	return nil
}
