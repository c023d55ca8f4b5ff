package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// Process is the handle on one command of one sandbox. Its methods refuse an empty ID with ErrNoID before they send anything.
type Process struct {
	Client  *Client
	Sandbox string
	ID      string
}

// Exec runs a command and streams its output; a command that prints faster than the stream is read waits. Closing the stream
// detaches: the command goes on, unless the request says kill_on_disconnect. With stdin_open, Process.Stdin passes on what the
// command reads; the stream's first event has the id.
func (c *Client) Exec(ctx context.Context, sandbox string, r wire.StartRequest) (*Stream, error) {
	path, err := sandboxPath(sandbox, "/exec")
	if err != nil {
		return nil, err
	}
	return c.stream(ctx, http.MethodPost, path, r)
}

// Start starts a command in the background. A second Start with the same r.ID starts nothing and says Reattached.
func (c *Client) Start(ctx context.Context, sandbox string, r wire.StartRequest) (Process, wire.Started, error) {
	var got wire.Started
	path, err := sandboxPath(sandbox, "/processes")
	if err == nil {
		err = c.call(ctx, http.MethodPost, path, r, &got)
	}
	return Process{Client: c, Sandbox: sandbox, ID: got.ID}, got, err
}

// Processes returns the running commands of a sandbox and those that ended lately.
func (c *Client) Processes(ctx context.Context, sandbox string) (got []wire.Process, err error) {
	path, err := sandboxPath(sandbox, "/processes")
	if err != nil {
		return nil, err
	}
	return got, c.call(ctx, http.MethodGet, path, nil, &got)
}

// Get returns what the server knows of the process.
func (p Process) Get(ctx context.Context) (got wire.Process, err error) {
	return got, p.call(ctx, http.MethodGet, "", nil, &got)
}

// Kill ends the process and all its descendants: SIGTERM, the grace, SIGKILL; without grace SIGKILL at once. stopped is true
// if the process died of this call and the runner has its exit status, false if there was nothing left to kill. An error of
// code "unknown" means that it could not be told.
func (p Process) Kill(ctx context.Context, grace time.Duration) (stopped bool, err error) {
	var got wire.Killed
	if grace <= 0 {
		err = p.call(ctx, http.MethodDelete, "", nil, &got)
	} else {
		seconds := strconv.FormatFloat(grace.Seconds(), 'f', -1, 64)
		err = p.call(ctx, http.MethodPost, ":kill?grace="+seconds, nil, &got)
	}
	return got.Killed, err
}

// Signal sends a signal such as "SIGTERM"; false when the process had ended.
func (p Process) Signal(ctx context.Context, name string) (signaled bool, err error) {
	var got wire.Signaled
	err = p.call(ctx, http.MethodPost, ":signal", wire.SignalRequest{Signal: name}, &got)
	return got.Signaled, err
}

// Stdin writes data to the process and, with eof, closes its standard input.
func (p Process) Stdin(ctx context.Context, data []byte, eof bool) error {
	return p.call(ctx, http.MethodPost, "/stdin", wire.StdinRequest{DataB64: data, EOF: eof}, nil)
}

// Output streams what the process wrote, from these offsets in bytes. With follow it goes on until the process ends.
func (p Process) Output(ctx context.Context, stdout, stderr int64, follow bool) (*Stream, error) {
	path, err := p.path("/output")
	if err != nil {
		return nil, err
	}
	q := url.Values{"stdout_offset": {strconv.FormatInt(stdout, 10)}, "stderr_offset": {strconv.FormatInt(stderr, 10)}}
	if follow {
		q.Set("follow", "1")
	}
	return p.Client.stream(ctx, http.MethodGet, path+"?"+q.Encode(), nil)
}

func (p Process) call(ctx context.Context, method, rest string, in, out any) error {
	path, err := p.path(rest)
	if err != nil {
		return err
	}
	return p.Client.call(ctx, method, path, in, out)
}

func (p Process) path(rest string) (string, error) {
	if p.ID == "" {
		return "", fmt.Errorf("%w of a process", ErrNoID)
	}
	return sandboxPath(p.Sandbox, "/processes/"+url.PathEscape(p.ID)+rest)
}
