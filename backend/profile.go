package backend

import (
	"fmt"
	"maps"
)

// The names of the profiles.
const (
	ProfileDefault = "default" // for code that nobody has read: small, and as nobody
	ProfileAgent   = "agent"   // for a coding agent: a user of its own and room to build
)

// Profile says as whom, with what and within which limits a sandbox runs. It is decided here for all backends, and what no
// sandbox may have cannot be said: there is no field for root, for privileges or capabilities, nor for a path of the host such
// as an engine's socket. A backend that confines less than this says so; it never gives more. It is a value; copies share Env,
// which is read-only.
type Profile struct {
	Name      string
	UID, GID  int               // never 0; a backend that gives each sandbox a user of its own may use that instead
	Workspace string            // where the workspace is mounted: the one writable place that outlives a stop
	TmpMB     int64             // size of the private /tmp, which no stop outlives; the rest of the root is read-only
	Env       map[string]string // set in every process; Spec.Env wins
	MemoryMB  int64             // MiB
	CPUs      float64           // of one core
	PIDs      int64             // processes and threads
}

// ProfileOf returns the profile of that name; "" is ProfileDefault. An unknown name is ErrInvalid, never a fallback.
func ProfileOf(name string) (Profile, error) {
	p := Profile{
		Name: ProfileDefault, UID: 65534, GID: 65534, Workspace: "/workspace",
		TmpMB: 64, MemoryMB: 512, CPUs: 1, PIDs: 256,
	}
	switch name {
	case "", ProfileDefault:
	case ProfileAgent:
		p.Name, p.UID, p.GID = ProfileAgent, 1000, 1000
		p.TmpMB, p.MemoryMB, p.CPUs, p.PIDs = 1024, 4096, 2, 1024
	default:
		return Profile{}, fmt.Errorf("%w: profile %q is unknown, %q and %q are known", ErrInvalid, name, ProfileDefault, ProfileAgent)
	}
	p.Env = map[string]string{
		"HOME": p.Workspace,
		"LANG": "C.UTF-8",
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"USER": p.Name,
	}
	return p, nil
}

// Effective returns the profile of s with what s asks for itself: its limits where they are not 0, and its Env over the
// profile's. Every builder starts from it, so that all of them build the same sandbox.
func (s Spec) Effective() (Profile, error) {
	p, err := ProfileOf(s.Profile)
	if err != nil {
		return Profile{}, err
	}
	if s.MemoryMB > 0 {
		p.MemoryMB = s.MemoryMB
	}
	if s.CPUs > 0 {
		p.CPUs = s.CPUs
	}
	if s.PIDs > 0 {
		p.PIDs = s.PIDs
	}
	maps.Copy(p.Env, s.Env)
	return p, nil
}
