package refserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// stubRunner stands for the runners of all sandboxes. It knows which it serves and refuses the rest, like a real one; what it
// does beyond activity is what a test gives it.
type stubRunner struct {
	token string

	mu       sync.Mutex // guards the fields below
	protocol int        // that it speaks
	boxes    map[string]wire.Activity
	next     map[string][]wire.Activity // answered first, one after the other
	most     int                        // how many there were at once
	deaf     map[string]bool            // of these nothing is answered but 500
	held     *gate                      // where questions for activity wait
	serve    func(http.ResponseWriter, *http.Request)
	seen     []string // method and path of what was served
}

func newStubRunner() *stubRunner {
	return &stubRunner{protocol: wire.Protocol, token: "runner-token", boxes: map[string]wire.Activity{}, deaf: map[string]bool{}}
}

// open and end are the hooks of the engine.
func (s *stubRunner) open(_ context.Context, sb backend.Sandbox) (backend.Endpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boxes[sb.ID] = wire.Activity{}
	s.most = max(s.most, len(s.boxes))
	return backend.Endpoint{Network: "tcp", Address: "runner:80", Token: s.token}, nil
}

func (s *stubRunner) end(r backend.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.boxes, r.ID)
}

func (s *stubRunner) mostAtOnce() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// set says what goes on in a sandbox; deafen makes its runner useless.
func (s *stubRunner) set(id string, a wire.Activity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boxes[id] = a
}

func (s *stubRunner) deafen(id string, deaf bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf[id] = deaf
}

// speak makes the runner one of another protocol.
func (s *stubRunner) speak(protocol int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.protocol = protocol
}

// handle gives the stub an answer to everything but activity.
func (s *stubRunner) handle(f func(http.ResponseWriter, *http.Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serve = f
}

// holdActivity makes questions for activity wait at a gate.
func (s *stubRunner) holdActivity() *gate {
	g := newGate()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = g
	return g
}

// nextActivity says what is answered next, before what set says.
func (s *stubRunner) nextActivity(id string, next ...wire.Activity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = map[string][]wire.Activity{id: next}
}

// activity returns what is going on in a sandbox.
func (s *stubRunner) activity(id string) wire.Activity {
	s.mu.Lock()
	defer s.mu.Unlock()
	act := s.boxes[id]
	if next := s.next[id]; len(next) > 0 {
		s.next[id] = next[1:]
		act = next[0]
	}
	if s.protocol > 1 {
		act.Protocol = s.protocol
	}
	return act
}

// requests returns what was served, activity apart.
func (s *stubRunner) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.seen...)
}

func (s *stubRunner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/sandboxes/"), "/")
	s.mu.Lock()
	_, known := s.boxes[id]
	deaf, held, handler, protocol := s.deaf[id], s.held, s.serve, s.protocol
	if rest != "activity" {
		s.seen = append(s.seen, r.Method+" "+r.URL.RequestURI())
	}
	s.mu.Unlock()
	if held != nil && rest == "activity" {
		_ = held.pass(r.Context())
	}
	switch {
	case r.URL.Path == "/health":
		reply(w, 200, wire.Health{Protocol: protocol})
	case deaf:
		panic(http.ErrAbortHandler)
	case r.Header.Get("Authorization") != "Bearer "+s.token:
		reply(w, 401, wire.Error{Error: "wrong token", Code: wire.CodeUnauthorized})
	case !known:
		reply(w, 404, wire.Error{Error: "no such sandbox", Code: wire.CodeNotFound})
	case rest == "activity":
		reply(w, 200, s.activity(id))
	case handler != nil:
		handler(w, r)
	case rest == "exec":
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", wire.StreamType)
		_, _ = io.WriteString(w, `{"event":"start","id":"p"}`+"\n"+`{"event":"exit","exit_code":0}`+"\n")
	default:
		_, _ = io.Copy(io.Discard, r.Body)
		reply(w, 200, wire.Done{OK: true})
	}
}

// goexit ends the goroutine that calls it.
func goexit(context.Context) error {
	runtime.Goexit()
	return nil
}

// hangUntil answers an exec, and ends it when done is closed.
func hangUntil(done <-chan struct{}) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", wire.StreamType)
		_, _ = io.WriteString(w, `{"event":"start","id":"p"}`+"\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-done:
			_, _ = io.WriteString(w, `{"event":"exit","exit_code":0}`+"\n")
		case <-r.Context().Done():
		}
	}
}

func noSuchProcess(w http.ResponseWriter, _ *http.Request) {
	reply(w, 404, wire.Error{Error: "no such process", Code: wire.CodeNotFound})
}

func reply(w http.ResponseWriter, status int, v any) {
	var b bytes.Buffer
	_ = json.NewEncoder(&b).Encode(v)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}
