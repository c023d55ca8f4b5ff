package probe

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"runtime/debug"
	"sync"
)

// Group is the health of a whole program: of what it cannot do without, and of what it can. The zero Group has no probes, is ready for use,
// and is well. It is safe for concurrent use.
type Group struct {
	mu      sync.Mutex // guards members
	members map[string]member
}

type member struct {
	required bool
	probe    interface {
		Status(context.Context) (Status, error)
	}
}

// Add adds a probe, which has to return when the context it is asked with ends, as every [Probe] does. Only required probes decide whether
// the group is well. Add panics if name is empty or taken, or if p is nil.
func (g *Group) Add(name string, required bool, p interface {
	Status(context.Context) (Status, error)
},
) {
	if name == "" || p == nil {
		panic("probe: Group.Add needs a name and a probe")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, taken := g.members[name]; taken {
		panic("probe: Group.Add of a name that is taken: " + name)
	}
	if g.members == nil {
		g.members = make(map[string]member)
	}
	g.members[name] = member{required: required, probe: p}
}

// Check asks all probes, side by side, and returns when each has answered, which is when ctx ends at the latest. ok says that no required
// probe is Down; optional ones do not matter for it. When a probe gives no answer, since ctx ended, it is closed, or it panicked, its Err
// says so, and its State is what it last was, or Unknown if it panicked.
func (g *Group) Check(ctx context.Context) (all map[string]Status, ok bool) {
	all, _, ok = g.ask(ctx)
	return all, ok
}

func (g *Group) ask(ctx context.Context) (all map[string]Status, members map[string]member, ok bool) {
	g.mu.Lock()
	members = maps.Clone(g.members)
	g.mu.Unlock()
	var (
		mu   sync.Mutex // guards all
		wait sync.WaitGroup
	)
	all = make(map[string]Status, len(members))
	for name, m := range members {
		wait.Go(func() {
			s := Status{Err: ErrGoexit}
			defer func() {
				if v := recover(); v != nil {
					s.Err = &PanicError{Value: v, Stack: debug.Stack()}
				}
				mu.Lock()
				all[name] = s
				mu.Unlock()
			}()
			s = m.status(ctx)
		})
	}
	wait.Wait()
	ok = true
	for name, m := range members {
		if m.required && all[name].State == Down {
			ok = false
		}
	}
	return all, members, ok
}

func (m member) status(ctx context.Context) Status {
	s, err := m.probe.Status(ctx)
	if err != nil {
		s.Err = err
	}
	return s
}

// Handler answers 200, or 503 if a required probe is Down, with the JSON object
//
//	{"status": "up", "probes": {"<name>": {"state": "up", "required": true, "error": "<text>", "at_ms": 0, "took_ms": 0}}}
//
// where status is down exactly with 503, otherwise unknown if a required probe is, otherwise up; error is absent after a success, at_ms
// (Unix time) and took_ms before the first measurement. It shows the text of errors: serve it to those who may read them.
func (g *Group) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all, members, ok := g.ask(r.Context())
		body, _ := json.Marshal(newReport(all, members, ok)) // strings and numbers: it cannot fail
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write(append(body, '\n')) // a client that has gone has no use for the error
	})
}

type report struct {
	Status string                `json:"status"`
	Probes map[string]reportLine `json:"probes"`
}

type reportLine struct {
	State    string `json:"state"`
	Required bool   `json:"required"`
	Error    string `json:"error,omitempty"`
	AtMS     *int64 `json:"at_ms,omitempty"`
	TookMS   *int64 `json:"took_ms,omitempty"`
}

func newReport(all map[string]Status, members map[string]member, ok bool) report {
	overall := Up
	lines := make(map[string]reportLine, len(all))
	for name, s := range all {
		required := members[name].required
		if required && s.State == Unknown {
			overall = Unknown
		}
		line := reportLine{State: s.State.String(), Required: required}
		if s.Err != nil {
			line.Error = s.Err.Error()
		}
		if !s.At.IsZero() {
			line.AtMS, line.TookMS = new(s.At.UnixMilli()), new(s.Took.Milliseconds())
		}
		lines[name] = line
	}
	if !ok {
		overall = Down
	}
	return report{Status: overall.String(), Probes: lines}
}
