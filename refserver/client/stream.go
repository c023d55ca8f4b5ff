package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// maxLine bounds one event of a stream, in bytes.
const maxLine = 8 << 20

// ErrTruncated is returned when a stream ended without its terminal event: what became of the process is unknown.
var ErrTruncated = errors.New("client: stream ended without an exit")

// ErrBroken is returned when the connection was lost, or carried what is no event, before the stream ended: the process may go on.
var ErrBroken = errors.New("client: the connection broke off")

// Stream is the output of a command. It is for one goroutine; Close may be called from any.
type Stream struct {
	body  io.ReadCloser
	lines *bufio.Scanner
}

func (c *Client) stream(ctx context.Context, method, path string, in any) (*Stream, error) {
	resp, err := c.doJSON(ctx, method, path, in)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLine)
	return &Stream{body: resp.Body, lines: lines}, nil
}

// Next returns the next event but pings. After the terminal event, exit or error, it returns io.EOF.
func (s *Stream) Next() (wire.Event, error) {
	for s.lines.Scan() {
		var ev wire.Event
		if err := json.Unmarshal(s.lines.Bytes(), &ev); err != nil {
			return ev, fmt.Errorf("%w: not an event: %w", ErrBroken, err)
		}
		if ev.Event != wire.EventPing {
			return ev, nil
		}
	}
	if err := s.lines.Err(); err != nil {
		return wire.Event{}, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return wire.Event{}, io.EOF
}

// Line returns the event that Next returned last as the server wrote it, without the line's end. It is good until the next Next.
func (s *Stream) Line() []byte { return s.lines.Bytes() }

// All iterates over the events up to and with the terminal one, then closes the stream. A stream that ends without one yields
// ErrTruncated last.
func (s *Stream) All() iter.Seq2[wire.Event, error] {
	return func(yield func(wire.Event, error) bool) {
		defer s.Close()
		for {
			ev, err := s.Next()
			if errors.Is(err, io.EOF) {
				err = ErrTruncated
			}
			last := err != nil || ev.Event == wire.EventExit || ev.Event == wire.EventError
			if !yield(ev, err) || last {
				return
			}
		}
	}
}

// Close ends the reading, not the command.
func (s *Stream) Close() error { return s.body.Close() }

// Bytes returns the exact bytes of an output event.
func Bytes(ev wire.Event) []byte {
	if ev.DataB64 != nil {
		return ev.DataB64
	}
	return []byte(ev.Data)
}
