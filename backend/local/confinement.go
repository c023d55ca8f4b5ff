package local

import (
	"github.com/keepwell-go/keepwell/backend/runner/spawn"
)

// missing names what RequireConfinement asks for and the machine does not give.
func missing(a spawn.Abilities) []string {
	var out []string
	if !a.UIDs {
		out = append(out, "a uid of its own for each sandbox (the host runner is not root)")
	}
	if !a.NoNewPrivs {
		out = append(out, "no_new_privs")
	}
	if a.LandlockABI == 0 {
		out = append(out, "Landlock")
	}
	return out
}

// confinement says what is enforced, one sentence each. It may be called from any goroutine.
func (h *host) confinement() []string {
	out := h.spawner.Abilities().Sentences()
	if h.hides {
		out = append(out, "processes outside of a sandbox cannot be seen")
	} else {
		out = append(out, "command lines of all processes can be read in every sandbox: secrets belong into the environment or a file")
	}
	return append(out, "CPU is not limited, and memory only where a sandbox asks for it")
}
