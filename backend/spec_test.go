package backend_test

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keepwell-go/keepwell/backend"
)

// The one check of ids is the rule that the documentation gives, byte for byte.
func TestCheckIDIsTheDocumentedPattern(t *testing.T) {
	pattern := regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\z`)
	ids := rapid.OneOf(
		rapid.StringMatching(`[a-z0-9-]{0,70}`),
		rapid.StringMatching("[a-z0-9`{/:A-Z_.\n-]{1,3}"),
		rapid.String(),
	)
	rapid.Check(t, func(t *rapid.T) {
		id := ids.Draw(t, "id")
		err := backend.CheckID(id)
		if want := pattern.MatchString(id); (err == nil) != want {
			t.Errorf("CheckID(%q) is %v, the pattern matches: %v", id, err, want)
		}
		if err != nil && !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("CheckID(%q) is %v, want one that is ErrInvalid", id, err)
		}
	})
}

func TestCheckIDNamesTheFault(t *testing.T) {
	long := strings.Repeat("x", 64)
	for id, want := range map[string]string{
		"a":       "",
		"0":       "",
		"a-0":     "",
		long[1:]:  "",
		"":        "backend: invalid: id has 0 bytes, 1 to 63 are allowed",
		long:      "backend: invalid: id has 64 bytes, 1 to 63 are allowed",
		"-a":      `backend: invalid: id "-a": byte 0 is not one of a-z, 0-9 or an inner '-'`,
		"a-":      `backend: invalid: id "a-": byte 1 is not one of a-z, 0-9 or an inner '-'`,
		"A":       `backend: invalid: id "A": byte 0 is not one of a-z, 0-9 or an inner '-'`,
		"a/../b":  `backend: invalid: id "a/../b": byte 1 is not one of a-z, 0-9 or an inner '-'`,
		"a\x00":   `backend: invalid: id "a\x00": byte 1 is not one of a-z, 0-9 or an inner '-'`,
		"grün":    `backend: invalid: id "grün": byte 2 is not one of a-z, 0-9 or an inner '-'`,
		"a`":      "backend: invalid: id \"a`\": byte 1 is not one of a-z, 0-9 or an inner '-'",
		"a{":      `backend: invalid: id "a{": byte 1 is not one of a-z, 0-9 or an inner '-'`,
		"a/":      `backend: invalid: id "a/": byte 1 is not one of a-z, 0-9 or an inner '-'`,
		"a:":      `backend: invalid: id "a:": byte 1 is not one of a-z, 0-9 or an inner '-'`,
		"z9-az-0": "",
	} {
		if got := text(backend.CheckID(id)); got != want {
			t.Errorf("CheckID(%q) is %q, want %q", id, got, want)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestRefNeedsAnInstanceThatFitsALabel(t *testing.T) {
	long := strings.Repeat("X", 64)
	const bad = `backend: invalid: instance of "a": byte %d is not a letter, a digit or an inner '.', '_' or '-'`
	for instance, want := range map[string]string{
		"x":                   "",
		"Z9":                  "",
		"a.b_c-d":             "",
		long[1:]:              "",
		"AbyzAZ019":           "",
		"":                    `backend: invalid: instance of "a" has 0 bytes, 1 to 63 are allowed`,
		long:                  `backend: invalid: instance of "a" has 64 bytes, 1 to 63 are allowed`,
		".a":                  fmt.Sprintf(bad, 0),
		"a_":                  fmt.Sprintf(bad, 1),
		"a b":                 fmt.Sprintf(bad, 1),
		"a,b":                 fmt.Sprintf(bad, 1),
		"a\x0eb":              fmt.Sprintf(bad, 1),
		"*":                   fmt.Sprintf(bad, 0),
		"a\xe1":               fmt.Sprintf(bad, 1),
		"\x31\x21":            fmt.Sprintf(bad, 1),
		"secret token of day": fmt.Sprintf(bad, 6),
	} {
		if got := text(backend.Ref{ID: "a", Instance: instance}.Check()); got != want {
			t.Errorf("instance %q: got %q, want %q", instance, got, want)
		}
	}
	if err := (backend.Ref{ID: "A", Instance: "x"}).Check(); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("a ref with a bad id: got %v, want ErrInvalid", err)
	}
}

// good is a spec at every bound at once.
func good() backend.Spec {
	s := backend.Spec{
		Ref: ref, Tenant: strings.Repeat("ü", 64), Image: strings.Repeat("i", 512), Profile: backend.ProfileAgent,
		Env: map[string]string{strings.Repeat("N", 256): strings.Repeat("v", 32<<10), "LINES": "a\nb=c"},
	}
	for i := len(s.Env); i < 128; i++ {
		s.Env[fmt.Sprint("N", i)] = ""
	}
	return s
}

func TestSpecAtItsBoundsIsGood(t *testing.T) {
	if err := good().Check(); err != nil {
		t.Error(err)
	}
	if err := (backend.Spec{Ref: ref}).Check(); err != nil {
		t.Errorf("the smallest spec: %v", err)
	}
}

// Each fault is named with its number and its limit, and no value of the environment is ever told.
func TestSpecIsRefusedWithFieldNumberAndLimit(t *testing.T) {
	for want, spoil := range map[string]func(*backend.Spec){
		"id has 0 bytes, 1 to 63 are allowed":                           func(s *backend.Spec) { s.ID = "" },
		`instance of "a" has 0 bytes, 1 to 63 are allowed`:              func(s *backend.Spec) { s.Instance = "" },
		"tenant has 129 bytes, at most 128 are allowed":                 func(s *backend.Spec) { s.Tenant += "x" },
		`tenant "a\x00" has control characters or is not UTF-8`:         func(s *backend.Spec) { s.Tenant = "a\x00" },
		`tenant "a\xff" has control characters or is not UTF-8`:         func(s *backend.Spec) { s.Tenant = "a\xff" },
		"image has 513 bytes, at most 512 are allowed":                  func(s *backend.Spec) { s.Image += "x" },
		`profile "root" is unknown, "default" and "agent" are known`:    func(s *backend.Spec) { s.Profile = "root" },
		"memory_mb is -1, at least 0 is needed":                         func(s *backend.Spec) { s.MemoryMB = -1 },
		"cpus is -0.5, at least 0 is needed":                            func(s *backend.Spec) { s.CPUs = -0.5 },
		"cpus is NaN, a finite number is needed":                        func(s *backend.Spec) { s.CPUs = math.NaN() },
		"cpus is +Inf, a finite number is needed":                       func(s *backend.Spec) { s.CPUs = math.Inf(1) },
		"cpus is -Inf, a finite number is needed":                       func(s *backend.Spec) { s.CPUs = math.Inf(-1) },
		"pids is -7, at least 0 is needed":                              func(s *backend.Spec) { s.PIDs = -7 },
		"ttl is -1ns, at least 0 is needed":                             func(s *backend.Spec) { s.TTL = -1 },
		"idle timeout is -1s, at least 0 is needed":                     func(s *backend.Spec) { s.Idle = -1e9 },
		"env has 129 names, at most 128 are allowed":                    func(s *backend.Spec) { s.Env["X"] = "" },
		"env has a name of 0 bytes, 1 to 256 are allowed":               env("", "secret"),
		"env has a name of 257 bytes, 1 to 256 are allowed":             env(strings.Repeat("N", 257), "secret"),
		`env name "A=B" has '=' or NUL in it`:                           env("A=B", "secret"),
		`env name "A\x00" has '=' or NUL in it`:                         env("A\x00", "secret"),
		`env "A" has a value of 32769 bytes, at most 32768 are allowed`: env("A", "secret"+strings.Repeat("s", 32<<10-5)),
		`env "B" has NUL in its value`:                                  env("B", "\x00secret"),
		`env "A" has NUL in its value`:                                  env("A", "secret\x00"),
		`tenant "line\none" has control characters or is not UTF-8`:     func(s *backend.Spec) { s.Tenant = "line\none" },
		`image "a\tb" has control characters or is not UTF-8`:           func(s *backend.Spec) { s.Image = "a\tb" },
		`id "../a": byte 0 is not one of a-z, 0-9 or an inner '-'`:      func(s *backend.Spec) { s.ID = "../a" },
	} {
		s := good()
		spoil(&s)
		err := s.Check()
		if !errors.Is(err, backend.ErrInvalid) || err.Error() != "backend: invalid: "+want {
			t.Errorf("got %v, want %q", err, "backend: invalid: "+want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%v tells a value of the environment", err)
		}
	}
}

// The order of a map is another each time; the error is not.
func TestSpecWithManyFaultsAlwaysGivesTheSameError(t *testing.T) {
	s := backend.Spec{Ref: ref, Env: map[string]string{"=2": "", "=1": "", "=3": ""}}
	for range 50 {
		if got, want := text(s.Check()), `backend: invalid: env name "=1" has '=' or NUL in it`; got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}

func env(name, value string) func(*backend.Spec) {
	return func(s *backend.Spec) { s.Env = map[string]string{name: value} }
}

func TestOutcomesAreTheWordsOfTheWire(t *testing.T) {
	for out, want := range map[backend.Outcome]string{
		backend.Unknown: "unknown", backend.Stopped: "stopped", backend.Gone: "gone", backend.Marked: "marked", 77: "unknown",
	} {
		if got := out.String(); got != want {
			t.Errorf("outcome %d is %q, want %q", out, got, want)
		}
	}
	if backend.Outcome(0) != backend.Unknown {
		t.Error("the zero Outcome is not Unknown")
	}
}
