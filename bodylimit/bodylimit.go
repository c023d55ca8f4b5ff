// Package bodylimit puts an end to request bodies, in a way the client gets to know about.
//
// It exists because of three faults that usually come together. A body without a bound lets one request take all memory. A body with
// a bound is often refused in a way that never arrives: the server answers while the client is still writing, then resets the
// connection, and the client reports a broken pipe instead of a 413; or the server first waits for the very bytes it is about to
// refuse. And of a body that was cut off at the limit the JSON decoder says that its syntax is wrong, which sends the client looking for
// an error that is not there.
//
// [Limiter.Handler] bounds what an [http.Handler] reads, [DecodeJSON] reads one JSON value, and [Limiter.Body] and [Limiter.Refuse] are
// the two halves they are made of. All follow the same rules:
//
//   - If the Content-Length is over the limit, nothing of the body is read, and a client that waits for 100 Continue is not told to send
//     it. Otherwise the first byte too many is what refuses a body, so one that just fills the limit is accepted.
//   - A body over the limit is a [TooLargeError], whatever else is wrong with it; a [MalformedError] is said only of a body
//     that was read to its end within the limit.
//   - The answer is sent at once. Most clients read it only when they have sent what they have, so the server goes on listening, for a
//     bounded time and to a bounded number of bytes, before it ends the connection. Over HTTP/2 it ends the one stream, and the
//     others do not notice.
//
// How slowly a client may send an accepted body is not decided here: set ReadTimeout or ReadHeaderTimeout of the [http.Server].
package bodylimit

import (
	"io"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"
)

// defaultDrain is long enough for a client nearby to finish what it had in flight, and short enough to hold a connection for.
const defaultDrain = 100 * time.Millisecond

// Limiter says which bodies are accepted; one will do for all handlers of a server. The zero Limiter accepts the empty body only. It is
// safe for concurrent use, as long as nobody writes to its fields. Its methods panic if it is nil or if Max or Drain is negative.
type Limiter struct {
	// Max is the largest body accepted, in bytes. With Gunzip it holds twice: for the bytes sent and for the bytes decoded.
	Max int64
	// Drain is how long a client is listened to after its body was refused; 0 means 100 ms. It is time on the socket, which only the
	// real clock measures.
	Drain time.Duration
	// Gunzip decodes bodies with Content-Encoding: gzip. Without it they are refused, like every other encoding.
	Gunzip bool
	// Strict makes DecodeJSON refuse objects with fields that the target does not have.
	Strict bool
	// Logger is told of refusals; nil is silent.
	Logger *zap.Logger
}

// Handler returns a handler that refuses what is declared to be too large, or is encoded in a way that is not accepted, and otherwise
// calls next with the body bounded, as [Limiter.Body] says. When a read gives next a [TooLargeError], next hands it to [Limiter.Refuse];
// or it answers itself, and the connection is closed after that answer too.
//
// With Gunzip next sees the decoded body, without Content-Encoding and without a declared length. It panics if next is nil.
func (l *Limiter) Handler(next http.Handler) http.Handler {
	l.mustBeValid()
	if next == nil {
		panic("bodylimit: Handler of a nil http.Handler")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		gunzip, err := l.judge(r)
		if err != nil {
			l.Refuse(w, r, err)
			return
		}
		var served struct { // one allocation
			sent    sentBody
			request http.Request
		}
		defer served.sent.client.leave()
		served.request = *r // a handler does not change the request it was given
		bind(&served.request, l.open(&served.sent, w, r, gunzip))
		next.ServeHTTP(w, &served.request)
	})
}

// Body returns the bounded body of r without reading from it. If the headers alone are enough to refuse it, the error is a
// [TooLargeError], for the Content-Length, or an [EncodingError].
//
// Reads of the body return a [TooLargeError] when it passes the limit, or a smaller one that net/http keeps around it, a
// [MalformedError] when it cannot be decoded, and what the connection says otherwise; each of them is repeated by every later read. No
// more than Max bytes are ever returned. Over HTTP/1 the read that passes the limit starts the time of Drain, after which nothing more is
// read from the connection.
func (l *Limiter) Body(w http.ResponseWriter, r *http.Request) (io.ReadCloser, error) {
	l.mustBeValid()
	gunzip, err := l.judge(r)
	if err != nil {
		return nil, err
	}
	return l.open(new(sentBody), w, r, gunzip), nil
}

// judge says by its headers whether r is refused, and whether its body has to be decoded.
func (l *Limiter) judge(r *http.Request) (gunzip bool, err error) {
	if r.ContentLength > l.Max {
		return false, &TooLargeError{Limit: l.Max, Declared: r.ContentLength}
	}
	encoding := contentEncoding(r.Header)
	switch {
	case encoding == "" || r.ContentLength == 0: // no body, whatever it is said to be encoded with
		return false, nil
	case l.Gunzip && (encoding == "gzip" || encoding == "x-gzip"):
		return true, nil
	default:
		return false, &EncodingError{Encoding: encoding}
	}
}

// open makes sent the body of r, and returns it or what decodes it.
func (l *Limiter) open(sent *sentBody, w http.ResponseWriter, r *http.Request, gunzip bool) *reader {
	src := r.Body
	if src == nil {
		src = http.NoBody
	}
	sent.client.limiter = l
	if r.ProtoMajor == 1 {
		sent.client.w = w
	}
	sent.reader = reader{src: src, left: l.Max, client: &sent.client}
	if !gunzip {
		return &sent.reader
	}
	return &reader{src: &gunzipper{sent: &sent.reader}, left: l.Max, client: &sent.client}
}

// contentEncoding returns the codings of the body in the order they were applied, without those that change nothing.
func contentEncoding(h http.Header) string {
	lines := h["Content-Encoding"]
	if len(lines) == 0 {
		return ""
	}
	var codings []string
	for coding := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		coding = strings.ToLower(strings.TrimSpace(coding))
		if coding != "" && coding != "identity" {
			codings = append(codings, coding)
		}
	}
	return strings.Join(codings, ", ")
}

// bind makes body the body of r, and r say of it what is true.
func bind(r *http.Request, body *reader) {
	r.Body = body
	if _, decoded := body.src.(*gunzipper); decoded {
		r.Header = r.Header.Clone()
		r.Header.Del("Content-Encoding")
		r.Header.Del("Content-Length")
		r.ContentLength = -1
	}
}

func (l *Limiter) mustBeValid() {
	switch {
	case l == nil:
		panic("bodylimit: nil Limiter")
	case l.Max < 0:
		panic("bodylimit: negative Limiter.Max")
	case l.Drain < 0:
		panic("bodylimit: negative Limiter.Drain")
	}
}

func (l *Limiter) drain() time.Duration {
	if l.Drain == 0 {
		return defaultDrain
	}
	return l.Drain
}

// Clamp is for a server that passes bodies on to another: it returns want, or ceiling if that is less, so that the server does not accept
// what the one behind it, whose limit is ceiling, would refuse. Lowering the limit called name is told to log, unless that is nil. All
// limits are in bytes. It panics if want or ceiling is negative.
func Clamp(log *zap.Logger, name string, want, ceiling int64) int64 {
	if want < 0 || ceiling < 0 {
		panic("bodylimit: Clamp of a negative limit: " + name)
	}
	if want <= ceiling {
		return want
	}
	if log != nil {
		log.Warn("body limit clamped to what the server behind accepts",
			zap.String("limit", name), zap.Int64("want", want), zap.Int64("ceiling", ceiling))
	}
	return ceiling
}
