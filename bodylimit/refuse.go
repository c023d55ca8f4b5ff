package bodylimit

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"
)

// drainBytes is how much of a refused body is read at most. A client that sends no more than this after the limit, and sends it within
// Limiter.Drain, has sent everything when the connection ends, and so needs not notice anything but the answer.
const drainBytes = 16 << 20

// refusal is the answer to one kind of error.
type refusal struct {
	status int
	body   refusalBody
	ended  bool // nothing of the body is left on the connection
}

type refusalBody struct {
	Error string `json:"error"`
	Code  string `json:"code"`
}

// classify says how err is answered, and whether it is this package's to answer. Too large comes first.
func classify(err error) (refusal, bool) {
	if e, ok := errors.AsType[*TooLargeError](err); ok {
		return refusal{status: http.StatusRequestEntityTooLarge, body: refusalBody{e.Error(), "payload_too_large"}}, true
	}
	if e, ok := errors.AsType[*EncodingError](err); ok {
		return refusal{status: http.StatusUnsupportedMediaType, body: refusalBody{e.Error(), "unsupported_encoding"}}, true
	}
	if e, ok := errors.AsType[*MalformedError](err); ok {
		return refusal{status: http.StatusBadRequest, body: refusalBody{e.Error(), "bad_request"}, ended: e.ended}, true
	}
	return refusal{}, false
}

// Refuse answers err, if a [TooLargeError], an [EncodingError] or a [MalformedError] is in it, with 413, 415 or 400 and the JSON object
// {"error": text, "code": "payload_too_large" | "unsupported_encoding" | "bad_request"}. Otherwise, or if err is nil, it writes nothing
// and returns false. Nothing may have been written to w before, and nothing should be after.
//
// If a part of the body may still be on its way, the answer is flushed, then Refuse goes on reading for as long as [Limiter] says, then
// net/http ends the connection or, over HTTP/2, the stream, for whose end some clients wait. For that w must be net/http's own, or have
// an Unwrap method that leads there, as [http.ResponseController] asks; otherwise the answer arrives too, but a silent client keeps
// the connection until ReadTimeout.
func (l *Limiter) Refuse(w http.ResponseWriter, r *http.Request, err error) bool {
	l.mustBeValid()
	answer, ok := classify(err)
	if !ok {
		return false
	}
	if l.Logger != nil {
		l.Logger.Info("request body refused", zap.Int("status", answer.status), zap.Error(err))
	}
	if answer.ended || r.Body == nil || r.Body == http.NoBody {
		l.write(w, answer)
	} else {
		l.writeAndHangUp(w, r, answer)
	}
	return true
}

// writeAndHangUp writes the answer while the body may still be on its way, and then reads on: when net/http cuts the client off, a client
// that is still sending takes that for the answer, be it a reset connection or, over HTTP/2, a reset stream.
func (l *Limiter) writeAndHangUp(w http.ResponseWriter, r *http.Request, answer refusal) {
	if r.ProtoMajor == 1 {
		// Without it net/http reads what is left before it sends anything. Over HTTP/2 it would end every other stream as well.
		w.Header().Set("Connection", "close")
	}
	err := l.stopListeningSoon(w)
	l.warn(err)
	l.write(w, answer)
	if err != nil {
		return // the answer leaves when the handler returns, and must not wait for a client without an end
	}
	if http.NewResponseController(w).Flush() == nil {
		_, _ = io.CopyN(io.Discard, sent(r.Body), drainBytes)
	}
}

func (l *Limiter) write(w http.ResponseWriter, answer refusal) {
	body, _ := json.Marshal(answer.body) // strings: it cannot fail
	h := w.Header()
	if answer.status == http.StatusUnsupportedMediaType {
		h.Set("Accept-Encoding", l.encodings())
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body))) // the client knows the end of the answer before the connection ends
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(answer.status)
	_, _ = w.Write(body) // a client that has gone is no concern of the caller
}

func (l *Limiter) encodings() string {
	if l.Gunzip {
		return "gzip, identity"
	}
	return "identity"
}

// stopListeningSoon bounds every read of the body that is still to come, net/http's own included.
func (l *Limiter) stopListeningSoon(w http.ResponseWriter) error {
	return http.NewResponseController(w).SetReadDeadline(time.Now().Add(l.drain()))
}

func (l *Limiter) warn(err error) {
	if err != nil && l.Logger != nil {
		l.Logger.Warn("a refused client cannot be hurried: the ResponseWriter has no SetReadDeadline and no Unwrap", zap.Error(err))
	}
}
