package refserver

import (
	"net/http"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/probe"
)

// healthJSON is the answer to GET /health; all but the first two are for who may know.
type healthJSON struct {
	Status      string     `json:"status"`
	Version     string     `json:"version"`
	Backend     string     `json:"backend,omitempty"`
	Probe       *probeJSON `json:"probe,omitempty"`
	Store       *probeJSON `json:"store,omitempty"` // of bindings, which nothing but the processes of old runners depends on
	Confinement []string   `json:"confinement,omitempty"`
}

// probeJSON shows the damped opinion and, beside it, the last measurement as it was.
type probeJSON struct {
	State  string `json:"state"`
	OK     bool   `json:"ok"`
	Error  string `json:"error,omitempty"`
	AtMS   int64  `json:"at_ms"`
	TookMS int64  `json:"took_ms"`
}

func probed(got probe.Result[struct{}]) *probeJSON {
	p := &probeJSON{State: got.State.String(), OK: got.Err == nil, AtMS: got.At.UnixMilli(), TookMS: got.Took.Milliseconds()}
	if got.Err != nil {
		p.Error = got.Err.Error()
	}
	return p
}

// getHealth answers 503 only while the backend is known to be down.
func (s *Server) getHealth(w http.ResponseWriter, r *http.Request, _ *call) error {
	got, err := s.health.Get(r.Context())
	if err != nil {
		return unavailable(err)
	}
	status, shown := http.StatusOK, healthJSON{Status: "ok", Version: s.cfg.Version}
	if got.State == probe.Down {
		status, shown.Status = http.StatusServiceUnavailable, "backend_down"
	}
	if s.auth.isAdmin(r) {
		shown.Backend, shown.Confinement = s.cfg.BackendName, s.cfg.Confinement
		shown.Probe = probed(got)
		store, err := s.store.Get(r.Context())
		if err != nil {
			return unavailable(err)
		}
		shown.Store = probed(store)
	}
	answer(w, status, shown)
	return nil
}

// readyJSON says whether new work may be sent here, and otherwise why not.
type readyJSON struct {
	Status string `json:"status"`
}

// getReady answers 503 while creates had better go elsewhere.
func (s *Server) getReady(w http.ResponseWriter, r *http.Request, _ *call) error {
	status, err := s.readiness(r)
	if err != nil {
		return unavailable(err)
	}
	code := http.StatusOK
	if status != "ok" {
		code = http.StatusServiceUnavailable
	}
	answer(w, code, readyJSON{status})
	return nil
}

// readiness is "ok" from the first answer of the backend until enough looks at it have failed, or a drain begins.
func (s *Server) readiness(r *http.Request) (string, error) {
	if s.latch.draining() {
		return wire.CodeDraining, nil
	}
	got, err := s.health.Get(r.Context())
	switch {
	case err != nil:
		return "", err
	case got.State == probe.Down:
		return "backend_down", nil
	case got.State == probe.Unknown:
		return "starting", nil
	}
	return "ok", nil
}
