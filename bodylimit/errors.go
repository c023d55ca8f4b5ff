package bodylimit

import (
	"fmt"
	"net/http"
	"strconv"
)

// TooLargeError says that a body has more bytes than are allowed, or is declared to have. It comes as a pointer, and [errors.As] finds an
// [http.MaxBytesError] in it too.
type TooLargeError struct {
	Limit    int64 // in bytes
	Declared int64 // the Content-Length, if that is what passed the limit; otherwise -1
}

// Error names the limit and, where it is known, the length.
func (e *TooLargeError) Error() string {
	var room [96]byte
	return string(e.appendText(room[:0]))
}

// appendText appends the text of the error. Nothing in it needs an escape in JSON.
func (e *TooLargeError) appendText(b []byte) []byte {
	b = append(b, "bodylimit: body "...)
	if e.Declared >= 0 {
		b = append(b, "of "...)
		b = append(strconv.AppendInt(b, e.Declared, 10), " bytes "...)
	}
	b = append(b, "is over the limit of "...)
	return append(strconv.AppendInt(b, e.Limit, 10), " bytes"...)
}

// Unwrap returns the error that [http.MaxBytesReader] would have returned, which other code may be looking for.
func (e *TooLargeError) Unwrap() error { return &http.MaxBytesError{Limit: e.Limit} }

// MalformedError says that a body is not too large but no good: it is not gzip though it says so, not a JSON value and nothing else, or
// JSON that does not fit the type. It comes as a pointer.
type MalformedError struct {
	Err error // what is wrong with it

	ended bool // the body was read to its end, so that the connection is fit for the next request
}

// Error says what is wrong with the body.
func (e *MalformedError) Error() string { return "bodylimit: malformed body: " + e.Err.Error() }

// Unwrap returns e.Err.
func (e *MalformedError) Unwrap() error { return e.Err }

// EncodingError says that a body is encoded in a way that the Limiter does not decode. It comes as a pointer, before the body is read.
type EncodingError struct {
	Encoding string // as sent, in lower case, without identity
}

// Error names the encoding, or as much of it as helps.
func (e *EncodingError) Error() string {
	const enough = 64
	return fmt.Sprintf("bodylimit: content encoding %.*q is not accepted", enough, e.Encoding)
}
