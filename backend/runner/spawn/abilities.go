package spawn

import "fmt"

// Abilities says what a Spawner can enforce on this machine. The zero value enforces nothing.
type Abilities struct {
	UIDs         bool // a uid of its own for each sandbox
	NoNewPrivs   bool
	LandlockABI  int // 0: none
	Subreaper    bool
	Marks        bool // a group of its own for each process tree
	SignalScope  bool // signals from inside stay inside
	NoTCPBind    bool // no TCP port can be chosen; who listens without having chosen one is given some port by the kernel
	OwnIPC       bool // System V IPC and POSIX message queues of a sandbox are its own
	ProcessLimit bool // rlimits hold from the first instruction on
}

// Confined reports whether files, privileges and processes are all held: what a caller who insists on confinement wants to see.
func (a Abilities) Confined() bool { return a.UIDs && a.NoNewPrivs && a.LandlockABI > 0 }

// Sentences returns what can and cannot be enforced, one plain sentence each, for a log or a health answer.
func (a Abilities) Sentences() []string {
	out := []string{
		choose(a.UIDs, "each sandbox has a uid of its own", "sandboxes share the uid of this process"),
		choose(a.NoNewPrivs, "privileges cannot be gained", "privileges can be gained by setuid programs"),
		a.files(),
		choose(a.NoTCPBind, "no TCP port can be chosen, though one that the kernel picks can be listened on", "TCP ports can be bound"),
		choose(a.SignalScope, "signals and abstract sockets do not leave a sandbox", a.unscoped()),
		choose(a.OwnIPC, "System V IPC and message queues do not leave a sandbox", "System V IPC and message queues reach other sandboxes"),
		a.limits(),
		a.trees(),
	}
	if !a.Subreaper {
		out = append(out, "orphans are not adopted")
	}
	return out
}

func (a Abilities) files() string {
	if a.LandlockABI == 0 {
		return "files are not confined beyond their permissions"
	}
	return fmt.Sprintf("files are confined by Landlock (ABI %d)", a.LandlockABI)
}

func (a Abilities) unscoped() string {
	if a.UIDs {
		return "abstract sockets reach other sandboxes"
	}
	return "signals and abstract sockets reach other processes of this user"
}

func (a Abilities) limits() string {
	switch {
	case !a.ProcessLimit:
		return "processes and memory not limited"
	case !a.UIDs:
		return "processes and memory not limited per sandbox"
	}
	return "processes are limited per sandbox, memory per process"
}

func (a Abilities) trees() string {
	switch {
	case a.Marks && a.UIDs:
		return "every descendant of a process is found and killed"
	case a.SignalScope:
		return "every process of a sandbox is found and killed; a descendant that left session, parent and environment behind may outlive a kill of its process"
	}
	return "a descendant that left session, parent and environment behind may outlive its sandbox"
}

func choose(cond bool, yes, no string) string {
	if cond {
		return yes
	}
	return no
}
