package runner

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"
)

// errStdinClosed is returned when the process does not read any more, or was told that nothing more will come.
var errStdinClosed = errors.New("runner: stdin is closed")

// stdin is the server's end of what a process reads. One write is under way at a time.
type stdin struct {
	turn chan struct{} // has a value while a write is under way
	pipe *os.File

	mu     sync.Mutex // guards closed
	closed bool
}

func newStdin(pipe *os.File) *stdin { return &stdin{turn: make(chan struct{}, 1), pipe: pipe} }

// write hands data to the process, waiting while its pipe is full. When ctx ends before that, a part of data may have been handed over.
func (s *stdin) write(ctx context.Context, data []byte, eof bool) error {
	select {
	case s.turn <- struct{}{}:
		return s.writeInTurn(ctx, data, eof)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// writeInTurn is write for who has the turn, which it gives up.
func (s *stdin) writeInTurn(ctx context.Context, data []byte, eof bool) error {
	defer func() { <-s.turn }()
	if s.isClosed() {
		return errStdinClosed
	}
	if err := s.writeAll(ctx, data); err != nil {
		return err
	}
	if eof {
		s.close()
	}
	return nil
}

func (s *stdin) writeAll(ctx context.Context, data []byte) error {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = s.pipe.SetWriteDeadline(time.Unix(1, 0))
	})
	_, err := s.pipe.Write(data)
	if !stop() {
		<-interrupted
		_ = s.pipe.SetWriteDeadline(time.Time{}) // for the next one
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ctx.Err()
	default: // the reader has closed its end, or close has closed ours
		s.close()
		return errStdinClosed
	}
}

func (s *stdin) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// close ends the stdin of the process, and a write that is under way. It may be called twice.
func (s *stdin) close() {
	s.mu.Lock()
	was := s.closed
	s.closed = true
	s.mu.Unlock()
	if !was {
		_ = s.pipe.Close()
	}
}
