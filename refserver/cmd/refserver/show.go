package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver/client"
)

// errLost is returned when a command ended well and some of its output was not seen.
var errLost = errors.New("the command ended well, but some of its output was lost")

// show prints the stream of one command.
type show struct {
	json  bool   // the lines of the server as they are
	whole bool   // lost output is a failure
	id    string // of the process, once known
	lost  bool   // a gap was seen

	started func(id string) // called once the process is known, unless nil
}

// all prints the stream as it comes and turns its end into an exit code.
func (s *show) all(stream *client.Stream) error {
	defer stream.Close()
	for ev, err := range stream.All() {
		if err != nil {
			return err
		}
		if s.json {
			if _, err := fmt.Printf("%s\n", stream.Line()); err != nil {
				return err
			}
		}
		if err := s.event(ev); err != nil {
			return err
		}
	}
	return nil
}

func (s *show) event(ev wire.Event) error {
	switch ev.Event {
	case wire.EventStart:
		s.id = ev.ID
		if s.started != nil {
			s.started(ev.ID)
		}
	case wire.EventStdout:
		return s.write(os.Stdout, ev)
	case wire.EventStderr:
		return s.write(os.Stderr, ev)
	case wire.EventGap:
		s.lost = true
		fmt.Fprintf(os.Stderr, "refserver: bytes %d to %d of %s were dropped before they were read\n", ev.From, ev.To, ev.Stream)
	case wire.EventError:
		return &client.Error{Code: ev.Code, Message: ev.Error}
	case wire.EventExit:
		if err := statusOf(ev); err != nil || !s.lost || !s.whole {
			return err
		}
		return errLost
	}
	return nil
}

func (s *show) write(w io.Writer, ev wire.Event) error {
	if s.json {
		return nil
	}
	_, err := w.Write(client.Bytes(ev))
	return err
}

// statusOf gives a command that was killed the code that shells give it, 128 and the signal's number.
func statusOf(ev wire.Event) error {
	switch {
	case ev.TimedOut:
		fmt.Fprintln(os.Stderr, "refserver: the command was killed: it ran into its timeout")
		return statusError(exitTimeout)
	case ev.Signal != nil:
		if n := unix.SignalNum(*ev.Signal); n != syscall.Signal(0) {
			return statusError(128 + int(n))
		}
		return statusError(exitFailed)
	case ev.ExitCode != nil && *ev.ExitCode != 0:
		return statusError(*ev.ExitCode)
	}
	return nil
}
