//go:build linux

package local_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

func writeFile(ctx context.Context, _ backend.Backend, s backend.Sandbox, name string, data []byte) error {
	_, err := inside(ctx, s, http.MethodPut, "files/write?path="+url.QueryEscape(name), bytes.NewReader(data))
	return err
}

func readFile(ctx context.Context, _ backend.Backend, s backend.Sandbox, name string) ([]byte, error) {
	return inside(ctx, s, http.MethodGet, "files/read?path="+url.QueryEscape(name), nil)
}

// inside asks the runner of a sandbox at its endpoint, as refserver does.
func inside(ctx context.Context, s backend.Sandbox, method, path string, body io.Reader) ([]byte, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, s.Endpoint.Network, s.Endpoint.Address)
	}}}
	req, err := http.NewRequestWithContext(ctx, method, "http://runner/v1/sandboxes/"+s.ID+"/"+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+s.Endpoint.Token)
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("%w: %s", fs.ErrNotExist, out)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s: %s", resp.Status, out)
	}
	return out, err
}

// sh runs a command in a sandbox and returns what it wrote and how it ended; -1 is by a signal.
func sh(t testing.TB, s backend.Sandbox, line string) (out string, code int) {
	t.Helper()
	body, err := json.Marshal(wire.StartRequest{Cmd: wire.Command{Line: line}})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := inside(context.Background(), s, http.MethodPost, "exec", bytes.NewReader(body))
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	for dec := json.NewDecoder(bytes.NewReader(raw)); ; {
		var e wire.Event
		if err := dec.Decode(&e); err != nil {
			t.Fatalf("%s: %v in %s", line, err, raw)
		}
		switch {
		case e.Event == wire.EventError:
			t.Fatalf("%s: %s", line, e.Error)
		case e.Event == wire.EventExit && e.ExitCode == nil:
			return out, -1
		case e.Event == wire.EventExit:
			return out, *e.ExitCode
		}
		out += e.Data
	}
}

// must runs a command that has to succeed, and returns what it wrote, trimmed.
func must(t testing.TB, s backend.Sandbox, line string) string {
	t.Helper()
	out, code := sh(t, s, line)
	if code != 0 {
		t.Fatalf("%s: ended with %d: %s", line, code, out)
	}
	return strings.TrimSpace(out)
}

// background starts a command that goes on.
func background(t testing.TB, s backend.Sandbox, argv ...string) {
	t.Helper()
	started(t, s, wire.StartRequest{Cmd: wire.Command{Argv: argv}})
}

func started(t testing.TB, s backend.Sandbox, req wire.StartRequest) (got wire.Started) {
	t.Helper()
	body, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	out, err := inside(context.Background(), s, http.MethodPost, "processes", bytes.NewReader(body))
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil {
		t.Fatalf("%v: %v", req.Cmd, err)
	}
	return got
}
