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

// refusal says how one kind of error is answered.
type refusal struct {
	err    error // the one whose text the client gets
	status int
	code   string
	ended  bool // nothing of the body is left on the connection
}

// classify says how err is answered, and whether it is this package's to answer. Too large comes first.
func classify(err error) (refusal, bool) {
	if e, ok := errors.AsType[*TooLargeError](err); ok {
		return refusal{err: e, status: http.StatusRequestEntityTooLarge, code: "payload_too_large"}, true
	}
	if e, ok := errors.AsType[*EncodingError](err); ok {
		return refusal{err: e, status: http.StatusUnsupportedMediaType, code: "unsupported_encoding"}, true
	}
	if e, ok := errors.AsType[*MalformedError](err); ok {
		return refusal{err: e, status: http.StatusBadRequest, code: "bad_request", ended: e.ended}, true
	}
	return refusal{}, false
}

// appendJSON appends the body of the answer. The text of a TooLargeError needs no escapes, and so none of the time to look for them.
func (f refusal) appendJSON(b []byte) []byte {
	b = append(b, `{"error":`...)
	if e, ok := f.err.(*TooLargeError); ok {
		b = append(e.appendText(append(b, '"')), '"')
	} else {
		text, _ := json.Marshal(f.err.Error()) // a string: it cannot fail
		b = append(b, text...)
	}
	b = append(append(b, `,"code":"`...), f.code...)
	return append(b, `"}`...)
}

// answer is what one refusal needs on the heap, in one allocation. No two answers share any of it: what a handler or a middleware
// does to the headers of its own is not known here.
type answer struct {
	headers [4]string
	text    [120]byte // where the body is written, if it has room
	rest    io.LimitedReader
}

// Refuse answers err, if a [TooLargeError], an [EncodingError] or a [MalformedError] is in it, with 413, 415 or 400 and the JSON object
// {"error": text, "code": "payload_too_large" | "unsupported_encoding" | "bad_request"}. Otherwise, or if err is nil, it writes nothing
// and returns false: then answer err yourself, since net/http makes a 200 of a handler that writes nothing. Nothing may have been
// written to w before, and nothing should be after.
//
// If a part of the body may still be on its way, the answer is flushed, then Refuse goes on reading for as long as [Limiter] says, then
// net/http ends the connection or, over HTTP/2, the stream, for whose end some clients wait. For that w must be net/http's own, or have
// an Unwrap method that leads there, as [http.ResponseController] asks; otherwise the answer arrives too, but a silent client keeps
// the connection until ReadTimeout.
func (l *Limiter) Refuse(w http.ResponseWriter, r *http.Request, err error) bool {
	l.mustBeValid()
	f, ok := classify(err)
	if !ok {
		return false
	}
	if l.Logger != nil {
		l.Logger.Info("request body refused", zap.Int("status", f.status), zap.Error(err))
	}
	if f.ended || r.Body == nil || r.Body == http.NoBody {
		l.write(w, f, new(answer), false)
	} else {
		l.writeAndHangUp(w, r, f)
	}
	return true
}

// writeAndHangUp writes the answer while the body may still be on its way, and then reads on: when net/http cuts the client off, a client
// that is still sending takes that for the answer, be it a reset connection or, over HTTP/2, a reset stream.
func (l *Limiter) writeAndHangUp(w http.ResponseWriter, r *http.Request, f refusal) {
	err := l.stopListeningSoon(w)
	l.warn(err)
	a := new(answer)
	// Without Connection: close net/http reads what is left before it sends anything. Over HTTP/2 it would end every other stream as well.
	l.write(w, f, a, r.ProtoMajor == 1)
	if err != nil {
		return // the answer leaves when the handler returns, and must not wait for a client without an end
	}
	if http.NewResponseController(w).Flush() == nil {
		a.rest = io.LimitedReader{R: sent(r.Body), N: drainBytes}
		_, _ = io.Copy(io.Discard, &a.rest)
	}
}

// write sets each header to a slice of its own length and capacity, so that one who adds to it does not write over the next.
func (l *Limiter) write(w http.ResponseWriter, f refusal, a *answer, hangUp bool) {
	body := f.appendJSON(a.text[:0])
	a.headers = [...]string{"application/json", strconv.Itoa(len(body)), "nosniff", "close"}
	h := w.Header()
	h["Content-Type"] = a.headers[0:1:1]
	h["Content-Length"] = a.headers[1:2:2] // the client knows the end of the answer before the connection ends
	h["X-Content-Type-Options"] = a.headers[2:3:3]
	if hangUp {
		h["Connection"] = a.headers[3:4:4]
	}
	if f.status == http.StatusUnsupportedMediaType {
		h.Set("Accept-Encoding", l.encodings())
	}
	w.WriteHeader(f.status)
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
