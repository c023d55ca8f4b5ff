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
	public, named := publicID(e.Value, body)
	if wire.CheckProcessID(public) != nil {
		return s.passOn(w, r, c, e, up.again(body)) // it is for the runner to say what is wrong with it
	}
	known := ""
	if named {
		if known, err = s.knownAs(r.Context(), e, public); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	out := s.onward(r, c, e.Value, up.again(body)).WithContext(ctx)
	out.Header.Set(wire.ProcessIDHeader, public)
	resp, err := s.startAndBind(out, e, public, known, cancel)
	if err != nil {
		if f, ok := errors.AsType[*failure](err); ok && !named {
			f.more = map[string]any{"id": public} // by which the start can be repeated, and a process that there is found
		}
		return err
	}
	defer resp.Body.Close()
	defer context.AfterFunc(r.Context(), cancel)() // now the runner may learn that the client has gone
	if exited := s.passBody(w, r, c, resp, up); exited {
		s.noteEnd(r.Context(), e.Value, public)
	}
	return nil
}

// publicID returns the id by which clients get to know the process that body starts, and whether the client has named it and so may
// have started it before. A name of the client's own is its key for repeating the request, which leads to the same id each time; only
// an assigned id is looked for in the store.
func publicID(b *box, body []byte) (id string, named bool) {
	var req wire.StartRequest
	_ = json.Unmarshal(body, &req) // for the runner to refuse
	switch {
	case req.ID == "":
		return newProcessID(), false
	case assigned(req.ID):
		return req.ID, true
	}
	sum := sha256.Sum256([]byte(b.Instance + "\x00" + req.ID))
	return assignedPrefix + lowerBase32(sum[:16]), true
}

// knownAs returns what public is bound to, "" if to nothing. What the runner has forgotten since is not run a second time.
func (s *Server) knownAs(ctx context.Context, e entry, public string) (guest string, err error) {
	guest, err = s.guestOf(ctx, e.Value, public)
	if err != nil || guest == "" {
		return "", err
	}
	resp, err := s.reach(ctx, s.runners.aboutProcess(ctx, e.Value, http.MethodGet, guest), e, nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer) // so that the connection is of use again
	if resp.StatusCode == http.StatusNotFound {
		return "", forgotten(public, nil)
	}
	return guest, nil
}

func forgotten(public string, cause error) error {
	return &failure{
		status: http.StatusConflict, code: wire.CodeDuplicate, cause: cause,
		text: "process " + public + " was started before, and its runner has forgotten it; start another one",
	}
}

// startAndBind returns the runner's answer with the public id in it, after the store has that. It goes on when the client leaves.
// Nothing is started before the store was told of it, and what cannot be bound is not left running. A start whose id is known already
// finds the process that is bound to it: there is nothing to write, and nothing that could go wrong with that.
func (s *Server) startAndBind(out *http.Request, e entry, public, known string, cancel func()) (*http.Response, error) {
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
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		if known == "" {
			s.keepEnd(ctx, e.Value, public, s.cfg.Clock.Now()) // before it is started again
		}
		return resp, nil
	}
	if err := s.bindStarted(ctx, resp, e, public, known); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// bindStarted binds public to the process that resp tells of, and makes it tell of public.
func (s *Server) bindStarted(ctx context.Context, resp *http.Response, e entry, public, known string) error {
	rec, rest, err := firstRecord(resp)
	if err != nil {
		return s.lost(ctx, e, err)
	}
	if guest := rec.id(); guest != "" {
		if wire.CheckProcessID(guest) != nil {
			return s.lost(ctx, e, fmt.Errorf("it calls a process %.80q, by which nothing can be asked for", guest))
		}
		if guest != known {
			err := s.bind(ctx, e.Value, public, guest)
			switch {
			case err == nil:
			case rec.says("reattached", true) && !errors.Is(err, binding.ErrConflict):
				return err // another start has made it, and may have answered for it
			default:
				return s.unbound(ctx, e.Value, public, guest, err)
			}
		}
		rec.set("id", public)
	}
	line, _ := json.Marshal(rec) // it was just parsed
	resp.Body = replay{io.MultiReader(bytes.NewReader(append(line, '\n')), rest), resp.Body}
	resp.Header.Del("Content-Length")
	return nil
}

// firstRecord reads the object that tells of the start: the answer itself, or the first line of a stream.
func firstRecord(resp *http.Response) (rec record, rest io.Reader, err error) {
	if !isStream(resp) {
		body, err := readAnswer(resp.Body)
		if err != nil {
			return nil, nil, err
		}
		rec, err = parseRecord(body)
		return rec, http.NoBody, err
	}
	buf := bufio.NewReaderSize(resp.Body, readAhead)
	line, err := readLine(buf)
	if err != nil {
		return nil, nil, err
	}
	rec, err = parseRecord(line)
	return rec, buf, err
}

// unbound ends a process that no id leads to.
func (s *Server) unbound(ctx context.Context, b *box, public, guest string, cause error) error {
	ctx, cancel := s.cfg.Clock.WithTimeout(context.WithoutCancel(ctx), startBudget)
	defer cancel()
	resp, err := s.runners.transport.RoundTrip(s.runners.aboutProcess(ctx, b, http.MethodDelete, guest))
	if err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("the runner answered %d", resp.StatusCode)
		}
	}
	s.log.Warn("killed a process that could not be bound to its id", zap.String("sandbox", b.ID), zap.String("process", public),
		zap.String("guest", guest), zap.NamedError("kill", err), zap.Error(cause))
	if errors.Is(cause, binding.ErrConflict) {
		return forgotten(public, cause)
	}
	return cause
}
