package backend_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/keepwell-go/keepwell/backend"
)

// R32: whatever is asked for, nobody is root and nothing of the host is reachable.
func TestNoProfileIsRootOrPrivileged(t *testing.T) {
	for _, name := range []string{backend.ProfileDefault, backend.ProfileAgent} {
		greedy := backend.Spec{Ref: ref, Profile: name, MemoryMB: 1 << 40, CPUs: 1e6, PIDs: 1 << 40, Env: map[string]string{"USER": "root", "DOCKER_HOST": "unix:///x"}}
		p, err := greedy.Effective()
		if err != nil {
			t.Fatal(err)
		}
		if p.UID < 1000 || p.GID < 1000 {
			t.Errorf("%s runs as %d:%d, want an ordinary user", name, p.UID, p.GID)
		}
		if p.Workspace != "/workspace" {
			t.Errorf("%s mounts its workspace at %q, want /workspace and nothing else", name, p.Workspace)
		}
	}
}

// R32: what cannot be said cannot be granted. A field for privileges, capabilities, devices or host paths would change this list.
func TestProfileHasNoFieldForPrivileges(t *testing.T) {
	var fields []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[backend.Profile]()) {
		fields = append(fields, f.Name)
	}
	const want = "Name UID GID Workspace TmpMB Env MemoryMB CPUs PIDs"
	if got := strings.Join(fields, " "); got != want {
		t.Errorf("the fields of Profile are %q, want %q", got, want)
	}
}

// R32: the whole table, so that a change is seen.
func TestProfiles(t *testing.T) {
	paths := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for name, want := range map[string]backend.Profile{
		"": {
			Name: "default", UID: 65534, GID: 65534, Workspace: "/workspace", TmpMB: 64, MemoryMB: 512, CPUs: 1, PIDs: 256,
			Env: map[string]string{"HOME": "/workspace", "LANG": "C.UTF-8", "PATH": paths, "USER": "default"},
		},
		"agent": {
			Name: "agent", UID: 1000, GID: 1000, Workspace: "/workspace", TmpMB: 1024, MemoryMB: 4096, CPUs: 2, PIDs: 1024,
			Env: map[string]string{"HOME": "/workspace", "LANG": "C.UTF-8", "PATH": paths, "USER": "agent"},
		},
	} {
		if got, err := backend.ProfileOf(name); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("profile %q is %+v, %v; want %+v", name, got, err, want)
		}
	}
	named, err := backend.ProfileOf(backend.ProfileDefault)
	if unnamed, _ := backend.ProfileOf(""); err != nil || !reflect.DeepEqual(named, unnamed) {
		t.Errorf("no name gives %+v, want the default %+v", unnamed, named)
	}
}

func TestUnknownProfileIsRefusedNotReplaced(t *testing.T) {
	for _, get := range []func() (backend.Profile, error){
		func() (backend.Profile, error) { return backend.ProfileOf("Default") },
		backend.Spec{Ref: ref, Profile: "Default", MemoryMB: 1}.Effective,
	} {
		got, err := get()
		if !errors.Is(err, backend.ErrInvalid) || !reflect.DeepEqual(got, backend.Profile{}) {
			t.Errorf("got %+v, %v; want nothing and ErrInvalid", got, err)
		}
	}
}

// R32: what a spec asks for reaches every builder by one way.
func TestSpecOverridesLimitsAndEnvironment(t *testing.T) {
	base, err := backend.ProfileOf(backend.ProfileAgent)
	if err != nil {
		t.Fatal(err)
	}
	limits := func(p backend.Profile) string { return fmt.Sprint(p.MemoryMB, " ", p.CPUs, " ", p.PIDs) }
	for want, s := range map[string]backend.Spec{
		"4096 2 1024":   {},
		"1 2 1024":      {MemoryMB: 1},
		"4096 0.1 1024": {CPUs: 0.1},
		"4096 2 1":      {PIDs: 1},
		"9000 8 7":      {MemoryMB: 9000, CPUs: 8, PIDs: 7},
	} {
		s.Profile = backend.ProfileAgent
		if p, err := s.Effective(); err != nil || limits(p) != want {
			t.Errorf("limits are %s, %v; want %s", limits(p), err, want)
		}
	}
	own := map[string]string{"HOME": "/elsewhere", "TOKEN": "t"}
	p, err := backend.Spec{Profile: backend.ProfileAgent, Env: own}.Effective()
	want := maps.Clone(base.Env)
	maps.Copy(want, own)
	if err != nil || !maps.Equal(p.Env, want) {
		t.Errorf("env is %v, %v; want %v", p.Env, err, want)
	}
	if len(own) != 2 {
		t.Errorf("the caller's own map has become %v", own)
	}
	if again, _ := backend.ProfileOf(backend.ProfileAgent); !maps.Equal(again.Env, base.Env) {
		t.Errorf("one sandbox's environment has become every sandbox's: %v", again.Env)
	}
}
