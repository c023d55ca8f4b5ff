package bodylimit

import (
	"fmt"
	"net/http"
	"strconv"
)

// TooLargeError is returned when a body passes the limit. It is also an [http.MaxBytesError] to [errors.As].
type TooLargeError struct {
	Limit    int64 // in bytes
	Declared int64 // the Content-Length, if that is what passed the limit; otherwise -1
}

// Error names the limit and, where it is known, the length.
func (e *TooLargeError) Error() string {
	limit := strconv.FormatInt(e.Limit, 10)
	if e.Declared < 0 {
		return "bodylimit: body is over the limit of " + limit + " bytes"
	}
	return "bodylimit: body of " + strconv.FormatInt(e.Declared, 10) + " bytes is over the limit of " + limit + " bytes"
}

// Unwrap returns the error that [http.MaxBytesReader] would have returned, which other code may be looking for.
func (e *TooLargeError) Unwrap() error { return &http.MaxBytesError{Limit: e.Limit} }

// MalformedError is returned when a body within the limit is not what was asked for: not gzip, not one JSON value, not of the type.
type MalformedError struct {
	Err error // what is wrong with it

	ended bool // the body was read to its end, so that the connection is fit for the next request
}

// Error says what is wrong with the body.
func (e *MalformedError) Error() string { return "bodylimit: malformed body: " + e.Err.Error() }

// Unwrap returns e.Err.
func (e *MalformedError) Unwrap() error { return e.Err }

// EncodingError is returned when the Content-Encoding of a body is not accepted.
type EncodingError struct {
	Encoding string // as sent, in lower case, without identity
}

// Error names the encoding, or as much of it as helps.
func (e *EncodingError) Error() string {
	const enough = 64
	return fmt.Sprintf("bodylimit: content encoding %.*q is not accepted", enough, e.Encoding)
}
