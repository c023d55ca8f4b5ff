package backendtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/keepwell-go/keepwell/backend"
)

func specs() []Case {
	return []Case{
		{
			"SpecComesBackFromCreateAndList", "R101", "a restarted server cannot tell whose a sandbox is or when it ends",
			nil, specComesBack,
		},
		{
			"ResumedSandboxHasTheNewSpec", "R101", "the labels of the first instance outlive it",
			[]string{"Resume"},
			resumedSpec,
		},
		{
			"EnvIsNotListed", "R101", "secrets of the environment show in every list",
			nil, envIsNotListed,
		},
		{
			"LargestSpecIsAccepted", "R66", "what the server admits the engine refuses",
			nil, largestSpec,
		},
		{
			"InvalidSpecsLeaveNothing", "R25", "a refused create leaves an object that blocks the id",
			nil, invalidSpecs,
		},
		{
			"InvalidRefsAreNeverAny", "R85", "an empty instance ends whatever runs",
			nil, invalidRefs,
		},
		{
			"EveryProfileIsAccepted", "R32", "a profile that the server offers cannot be created",
			nil, everyProfile,
		},
	}
}

func (e *env) fullSpec() backend.Spec {
	s := e.spec("full")
	s.Tenant, s.Pinned = "Tenant of Ünits_1", true
	s.MemoryMB, s.CPUs, s.PIDs = 128, 0.5, 64
	s.TTL, s.Idle = 90*time.Minute, 7*time.Minute
	return s
}

func specComesBack(e *env) {
	b, s := e.open(), e.fullSpec()
	before := time.Now()
	made := e.create(b, s)
	for how, got := range map[string]backend.Sandbox{"create": made, "list": e.running(e.open(), s.Ref)} {
		e.same(how, got, s)
		const slack = 2 * time.Second // engines with whole seconds, clocks of other machines
		if got.Created.Before(before.Add(-slack)) || got.Created.After(time.Now().Add(slack)) {
			e.failf("%s: created at %v, want between %v and now", how, got.Created, before)
		}
		if !got.Renewed.Equal(got.Created) {
			e.failf("%s: renewed at %v, want %v: the lifetime begins with the create", how, got.Renewed, got.Created)
		}
	}
}

func resumedSpec(e *env) {
	b, s := e.open(), e.fullSpec()
	first := e.create(b, s)
	e.stop(b, s.Ref, backend.Stopped)
	s = again(s)
	s.Pinned, s.MemoryMB, s.TTL, s.Idle = false, 256, time.Hour, time.Minute
	e.create(b, s)
	got := e.running(b, s.Ref)
	e.same("list", got, s)
	if got.Created.Before(first.Created) {
		e.failf("resumed sandbox was created at %v, the instance before it at %v", got.Created, first.Created)
	}
}

// same compares what is carried.
func (e *env) same(how string, got backend.Sandbox, want backend.Spec) {
	carried := func(s backend.Spec) string {
		return fmt.Sprintf("tenant %q, profile %q, memory %d, cpus %v, pids %d, ttl %v, idle %v, pinned %v",
			s.Tenant, s.Profile, s.MemoryMB, s.CPUs, s.PIDs, s.TTL, s.Idle, s.Pinned)
	}
	if g, w := carried(got.Spec), carried(want); g != w {
		e.failf("%s of %q carries %s; want %s", how, want.ID, g, w)
	}
}

func envIsNotListed(e *env) {
	b, s := e.open(), e.spec("a")
	s.Env = map[string]string{"SECRET": "not for lists"}
	e.create(b, s)
	if got := e.running(b, s.Ref); len(got.Env) != 0 {
		e.failf("%q is listed with %d variables of its environment, want none", s.ID, len(got.Env))
	}
}

func largestSpec(e *env) {
	b, s := e.open(), e.spec("a")
	s.ID = strings.Repeat("x", 63-len(e.token)-1) + "-" + e.token
	s.Instance = strings.Repeat("i", 63)
	s.Env = map[string]string{"LARGEST": strings.Repeat("v", 32<<10)}
	for i := len(s.Env); i < 128; i++ {
		s.Env[fmt.Sprintf("NAME_%d", i)] = "v=1"
	}
	e.create(b, s)
	e.running(b, s.Ref)
	e.destroy(b, s.Ref, backend.Stopped)
	e.absent(b, s.ID)
}

func invalidSpecs(e *env) {
	b := e.open()
	for name, spoil := range map[string]func(*backend.Spec){
		"upper case id":      func(s *backend.Spec) { s.ID = "A-" + e.token },
		"path id":            func(s *backend.Spec) { s.ID = "../" + e.token },
		"long id":            func(s *backend.Spec) { s.ID = strings.Repeat("x", 64-len(e.token)) + e.token },
		"no instance":        func(s *backend.Spec) { s.Instance = "" },
		"unknown profile":    func(s *backend.Spec) { s.Profile = "root" },
		"control in tenant":  func(s *backend.Spec) { s.Tenant = "a\nb" },
		"negative memory":    func(s *backend.Spec) { s.MemoryMB = -1 },
		"negative cpus":      func(s *backend.Spec) { s.CPUs = -0.5 },
		"negative pids":      func(s *backend.Spec) { s.PIDs = -1 },
		"negative lifetime":  func(s *backend.Spec) { s.TTL = -1 },
		"negative idle time": func(s *backend.Spec) { s.Idle = -1 },
		"= in a name":        func(s *backend.Spec) { s.Env = map[string]string{"A=B": ""} },
		"large value":        func(s *backend.Spec) { s.Env = map[string]string{"A": strings.Repeat("v", 32<<10+1)} },
	} {
		s := e.spec("bad")
		spoil(&s)
		e.must(caught(func() { e.refused(b, s, backend.ErrInvalid) }), "spec with %s", name)
	}
	if left := e.list(b); len(left) != 0 {
		e.failf("refused specs left %q behind", slices.Sorted(maps.Keys(left)))
	}
	e.create(b, e.spec("bad"))
}

func invalidRefs(e *env) {
	b, s := e.open(), e.spec("a")
	e.create(b, s)
	for _, r := range []backend.Ref{{ID: s.ID}, {Instance: s.Instance}, {}, {ID: s.ID, Instance: "*"}, {ID: "*", Instance: s.Instance}} {
		out, err := b.Stop(e.ctx, r)
		e.invalid(fmt.Sprintf("stop of %v", r), out, err)
		out, err = b.Destroy(e.ctx, r)
		e.invalid(fmt.Sprintf("destroy of %v", r), out, err)
		if m, ok := b.(backend.Marker); ok {
			out, err = m.Mark(e.ctx, r, true)
			e.invalid(fmt.Sprintf("mark of %v", r), out, err)
		}
	}
	e.running(b, s.Ref)
}

func everyProfile(e *env) {
	b := e.open()
	for _, name := range []string{backend.ProfileDefault, backend.ProfileAgent} {
		s := e.spec("p-" + name)
		s.Profile = name
		e.create(b, s)
		if got := e.running(b, s.Ref); got.Profile != name {
			e.failf("%q is listed with profile %q, want %q", s.ID, got.Profile, name)
		}
	}
}
