package refserver

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver/binding"
	"github.com/keepwell-go/keepwell/registry/fresh"
)

// startBudget bounds a start at a runner, whose client may have gone meanwhile.
const startBudget = 30 * time.Second

// startBound starts a process at a runner that names it itself, and answers under the id that was assigned.
func (s *Server) startBound(w http.ResponseWriter, r *http.Request, c *call, e entry, up *upload) error {
	body, err := up.all()
	if err != nil {
		return err
	}
	public := publicID(e.Value, body)
	if wire.CheckProcessID(public) != nil {
		return s.passOn(w, r, c, e, up.again(body)) // it is for the runner to say what is wrong with it
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	out := s.onward(r, c, e.Value, up.again(body)).WithContext(ctx)
	out.Header.Set(wire.ProcessIDHeader, public)
	resp, err := s.startAndBind(out, e, public, cancel)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	defer context.AfterFunc(r.Context(), cancel)() // now the runner may learn that the client has gone
	if exited := s.passBody(w, r, c, resp, up); exited || resp.StatusCode != http.StatusOK {
		s.noteEnd(r.Context(), e.Value, public)
	}
	return nil
}

// publicID returns the id by which clients get to know the process that body starts. A name of the client's own is its key for
// repeating the request, which leads to the same id each time; only an assigned id is looked for in the store.
func publicID(b *box, body []byte) string {
	var req wire.StartRequest
	_ = json.Unmarshal(body, &req) // for the runner to refuse
	switch {
	case req.ID == "":
		return newProcessID()
	case assigned(req.ID):
		return req.ID
	}
	sum := sha256.Sum256([]byte(b.Instance + "\x00" + req.ID))
	return assignedPrefix + lowerBase32(sum[:16])
}

// startAndBind returns the runner's answer with the public id in it, after the store has that. It goes on when the client leaves.
// Nothing is started before the store was told of it, and what cannot be bound is not left running.
func (s *Server) startAndBind(out *http.Request, e entry, public string, cancel func()) (*http.Response, error) {
	if !s.tasks.begin() {
		return nil, unavailable(fresh.ErrClosed)
	}
	defer s.tasks.wg.Done()
	late := s.cfg.Clock.AfterFunc(startBudget, cancel)
	defer late.Stop()
	ctx, now := out.Context(), s.cfg.Clock.Now()
	err := s.stored(ctx, func(ctx context.Context) error {
		return s.bindings.Begin(ctx, binding.Start{Ref: e.Value.Ref, ID: public, At: now, Expires: now.Add(binding.Lifetime)})
	})
	if err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx) // it may have ended for being late
	resp, err := s.reach(ctx, out, e, nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	rec, rest, err := firstRecord(resp)
	if err != nil {
		_ = resp.Body.Close()
		return nil, s.lost(ctx, e, err)
	}
	if guest := rec.id(); guest != "" {
		if err := s.bind(ctx, e.Value, public, guest); err != nil {
			_ = resp.Body.Close()
			return nil, s.unbound(ctx, e.Value, public, guest, err)
		}
		rec.set("id", public)
	}
	line, _ := json.Marshal(rec) // it was just parsed
	resp.Body = replay{io.MultiReader(bytes.NewReader(append(line, '\n')), rest), resp.Body}
	resp.Header.Del("Content-Length")
	return resp, nil
}

// firstRecord reads the object that tells of the start: the answer itself, or the first line of a stream.
func firstRecord(resp *http.Response) (rec record, rest io.Reader, err error) {
	if !isStream(resp) {
		rec, err = readRecord(resp.Body)
		return rec, http.NoBody, err
	}
	buf := bufio.NewReaderSize(resp.Body, readAhead)
	line, err := buf.ReadSlice('\n')
	if err != nil {
		return nil, nil, fmt.Errorf("the first line of its stream: %w", err)
	}
	rec, err = parseRecord(line)
	return rec, buf, err
}

// unbound ends a process that no id leads to.
func (s *Server) unbound(ctx context.Context, b *box, public, guest string, cause error) error {
	ctx, cancel := s.cfg.Clock.WithTimeout(context.WithoutCancel(ctx), startBudget)
	defer cancel()
	resp, err := s.runners.transport.RoundTrip(
		s.runners.request(ctx, b.Endpoint, http.MethodDelete, "/v1/sandboxes/"+b.ID+"/processes/"+guest, ""))
	if err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("the runner answered %d", resp.StatusCode)
		}
	}
	s.log.Warn("killed a process that could not be bound to its id", zap.String("sandbox", b.ID), zap.String("process", public),
		zap.String("guest", guest), zap.NamedError("kill", err), zap.Error(cause))
	if errors.Is(cause, binding.ErrConflict) {
		return &failure{
			status: http.StatusConflict, code: wire.CodeDuplicate, cause: cause,
			text: "process " + public + " was started before, and its runner has forgotten it; start another one",
		}
	}
	return cause
}
