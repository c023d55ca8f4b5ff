package refserver

// The states of a sandbox, as answers name them.
const (
	stateCreating   = "creating"
	stateRunning    = "running"
	stateStopped    = "stopped"
	stateDestroying = "destroying"
)

// stateStopping is one that no answer has: while it lasts, look-ups of a registered sandbox wait.
const stateStopping = "stopping"

// sandboxJSON is a sandbox as a client sees it. It has no clock of its activity: the runner alone knows that one.
type sandboxJSON struct {
	ID            string `json:"id"`
	Instance      string `json:"instance"`
	Tenant        string `json:"tenant"`
	Profile       string `json:"profile"`
	State         string `json:"state"`
	Backend       string `json:"backend"`
	CreatedAtMS   int64  `json:"created_at_ms"`
	ExpiresAtMS   int64  `json:"expires_at_ms"`   // 0: never
	IdleTimeoutMS int64  `json:"idle_timeout_ms"` // 0: never
	Pinned        bool   `json:"pinned"`
	Token         string `json:"token,omitempty"`   // in the answer to a create only
	Resumed       *bool  `json:"resumed,omitempty"` // in the answer to a create only
}

// createJSON is the body of a create.
type createJSON struct {
	ID            string            `json:"id"`
	Tenant        string            `json:"tenant"`
	Profile       string            `json:"profile"`
	Image         string            `json:"image"`
	Env           map[string]string `json:"env"`
	TTLMS         int64             `json:"ttl_ms"`
	IdleTimeoutMS int64             `json:"idle_timeout_ms"`
	Limits        *limitsJSON       `json:"limits"`
	Pinned        bool              `json:"pinned"`
}

type limitsJSON struct {
	MemoryMB int64   `json:"memory_mb"`
	CPUs     float64 `json:"cpus"`
	PIDs     int64   `json:"pids"`
}

func (s *Server) sandboxJSON(b *box) sandboxJSON {
	shown := sandboxJSON{
		ID: b.ID, Instance: b.Instance, Tenant: b.Tenant, Profile: b.Profile, State: stateRunning, Backend: s.cfg.BackendName,
		CreatedAtMS: b.Created.UnixMilli(), IdleTimeoutMS: b.Idle.Milliseconds(), Pinned: b.Pinned,
	}
	switch {
	case b.state != "":
		shown.State = b.state
	case !b.Running:
		shown.State = stateStopped
	}
	if at, ok := b.expires(); ok {
		shown.ExpiresAtMS = at.UnixMilli()
	}
	return shown
}
