package bodylimit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// aheadOfTime bounds the memory taken on the word of a Content-Length alone.
const aheadOfTime = 64 << 10

var (
	errNoValue  = errors.New("no JSON value")
	errTrailing = errors.New("data after the JSON value")
)

// DecodeJSON reads the body of r, within the limit and to its end, and decodes the one JSON value in it. If that fails it returns the zero
// value and a [TooLargeError], a [MalformedError] or an [EncodingError], all of them for [Limiter.Refuse]; or, when the body broke off, an
// error that wraps what the connection said: its client may still be there, so answer that too. It holds the body in memory, at most
// Max bytes of it.
func DecodeJSON[T any](l *Limiter, w http.ResponseWriter, r *http.Request) (T, error) {
	var value, zero T
	data, err := l.readAll(w, r)
	if err != nil {
		return zero, err
	}
	if err := l.unmarshal(data, &value); err != nil {
		return zero, &MalformedError{Err: err, ended: true}
	}
	return value, nil
}

// readAll reads the whole body before anything is decoded, so that whether it is too large depends on its length and on nothing else.
func (l *Limiter) readAll(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := l.Body(w, r)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	buf.Grow(int(min(max(r.ContentLength, 0), aheadOfTime)) + bytes.MinRead)
	if _, err := buf.ReadFrom(body); err != nil {
		if _, ours := classify(err); ours {
			return nil, err
		}
		return nil, fmt.Errorf("bodylimit: read body: %w", err)
	}
	return buf.Bytes(), nil
}

func (l *Limiter) unmarshal(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if l.Strict {
		dec.DisallowUnknownFields()
	}
	switch err := dec.Decode(into); {
	case err == io.EOF:
		return errNoValue
	case err != nil:
		return err
	}
	if len(bytes.Trim(data[dec.InputOffset():], " \t\r\n")) > 0 {
		return errTrailing
	}
	return nil
}
