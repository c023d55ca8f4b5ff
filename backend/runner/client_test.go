package runner_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// client is a client of one sandbox.
type client struct {
	t      testing.TB
	http   *http.Client
	base   string
	home   string
	header map[string]string // sent with every request
}

func (c *client) request(method, path string, body io.Reader) *http.Response {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.base+path, body)
	if err != nil {
		c.t.Fatal(err)
	}
	for name, value := range c.header {
		req.Header.Set(name, value)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp
}

// call makes a request and decodes its answer into out, which may be nil. It returns the status.
func (c *client) call(method, path string, body, out any) int {
	c.t.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	default:
		text, _ := json.Marshal(b)
		r = bytes.NewReader(text)
	}
	resp := c.request(method, path, r)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			c.t.Fatalf("%s %s: %d %q: %v", method, path, resp.StatusCode, text, err)
		}
	}
	return resp.StatusCode
}

// ok is call that must succeed.
func (c *client) ok(method, path string, body, out any) {
	c.t.Helper()
	var raw json.RawMessage
	if status := c.call(method, path, body, &raw); status != http.StatusOK {
		c.t.Fatalf("%s %s: %d %s", method, path, status, raw)
	}
	if out != nil {
		if err := json.Unmarshal(raw, out); err != nil {
			c.t.Fatal(err)
		}
	}
}

// refused is call that must fail in a certain way. It returns what the user is told.
func (c *client) refused(method, path string, body any, status int, code string) string {
	c.t.Helper()
	var e wire.Error
	if got := c.call(method, path, body, &e); got != status || e.Code != code || e.Error == "" {
		c.t.Errorf("%s %.100s: %d %+v; want %d %s", method, path, got, e, status, code)
	}
	return e.Error
}

// events is a stream being read.
type events struct {
	t    testing.TB
	body io.ReadCloser
	dec  *json.Decoder
}

func (c *client) stream(method, path string, body any) *events {
	c.t.Helper()
	var r io.Reader
	if body != nil {
		text, _ := json.Marshal(body)
		r = bytes.NewReader(text)
	}
	resp := c.request(method, path, r)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != wire.StreamType {
		text, _ := io.ReadAll(resp.Body)
		c.t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, text)
	}
	e := &events{c.t, resp.Body, json.NewDecoder(resp.Body)}
	c.t.Cleanup(e.close)
	return e
}

func (e *events) close() { _ = e.body.Close() }

// next returns the next event, but for pings.
func (e *events) next() wire.Event {
	e.t.Helper()
	for {
		var ev wire.Event
		if err := e.dec.Decode(&ev); err != nil {
			e.t.Fatalf("stream ended without its last event: %v", err)
		}
		if ev.Event != wire.EventPing {
			return ev
		}
	}
}

// result is a stream that was read to its end.
type result struct {
	start          wire.Event
	stdout, stderr []byte
	gaps           []wire.Event
	last           wire.Event
}

// rest reads to the end and checks what holds for every stream: offsets add up, and nothing follows the last event.
func (e *events) rest() result {
	e.t.Helper()
	var res result
	at := map[string]int64{}
	for {
		switch ev := e.next(); ev.Event {
		case wire.EventStart:
			res.start = ev
		case wire.EventStdout, wire.EventStderr:
			data := ev.DataB64
			if data == nil {
				data = []byte(ev.Data)
			}
			if want, seen := at[ev.Event]; seen && ev.Offset != want {
				e.t.Fatalf("%s at offset %d, want %d", ev.Event, ev.Offset, want)
			}
			at[ev.Event] = ev.Offset + int64(len(data))
			if ev.Event == wire.EventStdout {
				res.stdout = append(res.stdout, data...)
			} else {
				res.stderr = append(res.stderr, data...)
			}
		case wire.EventGap:
			at[ev.Stream] = ev.To
			res.gaps = append(res.gaps, ev)
		default:
			res.last = ev
			var more json.RawMessage
			if err := e.dec.Decode(&more); err != io.EOF {
				e.t.Fatalf("after %+v: %s, %v", ev, more, err)
			}
			return res
		}
	}
}

func (c *client) exec(req wire.StartRequest) result {
	c.t.Helper()
	return c.stream("POST", "/exec", req).rest()
}

func (c *client) sh(line string) result {
	c.t.Helper()
	return c.exec(wire.StartRequest{Cmd: wire.Command{Line: line}})
}

// code asserts that the process ended by itself, and returns its exit code.
func (r result) code(t testing.TB) int {
	t.Helper()
	if r.last.Event != wire.EventExit || r.last.ExitCode == nil || r.last.Signal != nil {
		t.Fatalf("last event %+v is no exit with a code", r.last)
	}
	return *r.last.ExitCode
}
