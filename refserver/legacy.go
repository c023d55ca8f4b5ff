package refserver

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// maxRecord bounds what a runner says of one process, in bytes.
const maxRecord = 4 << 20

// legacy says whether the runner of b gives its processes ids of its own.
func (b *box) legacy() bool { return b.protocol < wire.Protocol }

// translate serves a request to a legacy runner, of whose ids a client sees none that a server assigned another for.
func (s *Server) translate(w http.ResponseWriter, r *http.Request, c *call, e entry, up *upload) error {
	switch {
	case c.route.starts:
		return s.startBound(w, r, c, e, up)
	case c.route.lists:
		return s.listRenamed(w, r, c, e)
	case assigned(c.process):
		return s.forwardBound(w, r, c, e, up)
	}
	return s.passOn(w, r, c, e, up)
}

// forwardBound passes on a request about one process under the id that its runner gave it, and answers under the one that was asked.
func (s *Server) forwardBound(w http.ResponseWriter, r *http.Request, c *call, e entry, up *upload) error {
	guest, err := s.guestOf(r.Context(), e.Value, c.process)
	if err != nil {
		return err
	}
	out := s.onward(r, c, e.Value, up)
	guest = or(guest, c.process) // one that is bound to none is the runner's own
	out.URL.Path = strings.NewReplacer("{id}", c.id, "{process}", guest).Replace(c.route.path)
	resp, err := s.reach(r.Context(), out, e, up)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if isStream(resp) {
		if exited := s.passBody(w, r, c, resp, up); exited {
			s.noteEnd(r.Context(), e.Value, c.process)
		}
		return nil
	}
	body, err := readAnswer(resp.Body)
	if err != nil {
		return s.lost(r.Context(), e, err)
	}
	rec, err := parseRecord(body)
	if err != nil { // whatever it is, no id is in its place there
		resp.Body = replay{bytes.NewReader(body), resp.Body}
		s.passBody(w, r, c, resp, up)
		return nil
	}
	rec.rename(guest, c.process)
	if rec.says("running", false) || rec["killed"] != nil {
		s.noteEnd(r.Context(), e.Value, c.process)
	}
	passHead(w, r, resp, up)
	answer(w, resp.StatusCode, rec)
	return nil
}

func isStream(resp *http.Response) bool { return resp.Header.Get("Content-Type") == wire.StreamType }

// replay is an answer of which something was read, and is there again.
type replay struct {
	io.Reader
	io.Closer
}
