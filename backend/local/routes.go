package local

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"

	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// routes serves the host's own interface; everything else is the inside of sandboxes.
func (h *host) routes(key string) http.Handler {
	own := http.NewServeMux()
	own.HandleFunc("GET "+pingPath, func(w http.ResponseWriter, _ *http.Request) { reply(w, h.info(), nil) })
	own.HandleFunc("POST "+downPath, func(w http.ResponseWriter, r *http.Request) {
		n, err := h.down(r.Context())
		reply(w, downAnswer{n}, err)
	})
	own.HandleFunc("GET "+sandboxesPath, func(w http.ResponseWriter, r *http.Request) {
		snap, err := h.list(r.URL.Query()["id"])
		reply(w, snap, err)
	})
	own.HandleFunc("POST "+sandboxesPath, func(w http.ResponseWriter, r *http.Request) {
		var req createRequest
		if !decode(w, r, &req) {
			return
		}
		sb, err := h.create(r.Context(), req)
		h.note("create", req.ID, "", err)
		reply(w, sb, err)
	})
	own.HandleFunc("POST "+sandboxesPath+"/{id}/{verb}", h.change)
	mux := http.NewServeMux()
	mux.Handle("/host/", guard(key, own))
	mux.Handle("/", h.server.Handler())
	return mux
}

// change serves the verbs on one instance. What has begun does not end with its caller.
func (h *host) change(w http.ResponseWriter, r *http.Request) {
	var req refRequest
	if !decode(w, r, &req) {
		return
	}
	ref := backend.Ref{ID: r.PathValue("id"), Instance: req.Instance}
	if err := ref.Check(); err != nil {
		reply(w, nil, err)
		return
	}
	var out backend.Outcome
	var err error
	switch r.PathValue("verb") {
	case "stop":
		out, err = h.stop(r.Context(), ref)
	case "destroy":
		out, err = h.destroy(r.Context(), ref)
	case "mark":
		out, err = h.pin(r.Context(), ref, req.Pinned)
	default:
		http.NotFound(w, r)
		return
	}
	h.note(r.PathValue("verb"), ref.ID, out.String(), err)
	reply(w, outcomeAnswer{out.String()}, err)
}

// note logs what was done. Only what nobody can explain to the caller is worth a line of a log that nobody prunes.
func (h *host) note(verb, id, outcome string, err error) {
	if err != nil && kindOf(err).err == nil {
		h.log.Warn(verb, zap.String("id", id), zap.Error(err))
		return
	}
	h.log.Debug(verb, zap.String("id", id), zap.String("outcome", outcome), zap.Error(err))
}

func (h *host) info() info {
	return info{
		Protocol: protocol, Version: h.version, Runner: h.protocol, PID: os.Getpid(),
		Confinement: h.confinement(), Missing: missing(h.spawner.Abilities()),
	}
}

// guard refuses requests without the key.
func guard(key string, next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(key))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		got := sha256.Sum256([]byte(token))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			send(w, http.StatusUnauthorized, wire.Error{Error: "the host runner's key is missing or wrong", Code: wire.CodeUnauthorized})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// decode reads the one JSON value of a body; it answers and returns false if there is none.
func decode(w http.ResponseWriter, r *http.Request, into any) bool {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxMessage))
	err := dec.Decode(into)
	if err == nil {
		if _, err = dec.Token(); errors.Is(err, io.EOF) {
			return true
		}
		err = errors.New("more than one value")
	}
	send(w, http.StatusBadRequest, wire.Error{Error: "request of a backend: " + err.Error(), Code: wire.CodeBadRequest})
	return false
}

// reply answers with v, or with err in the form that keeps its kind.
func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		k := kindOf(err)
		send(w, k.status, wire.Error{Error: err.Error(), Code: k.code})
		return
	}
	send(w, http.StatusOK, v)
}

func send(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an error means that the caller has gone
}
