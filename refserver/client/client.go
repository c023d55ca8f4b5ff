// Package client speaks to a refserver.
//
// It prevents two faults of hand-written clients: a kill of a process that has no id, which some server takes for "all" or for
// the number 0, and a kill that counts a polite answer as proof. Kill refuses a missing id before any request is sent, and says
// whether this very call ended the process.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// ErrNoID is returned before any request is sent when a sandbox or process has no id.
var ErrNoID = errors.New("client: no id")

// maxAnswer bounds, in bytes, an answer that is read whole.
const maxAnswer = 64 << 20

// Client sends requests to one server. It needs Base; the zero HTTP is http.DefaultClient. It is safe for concurrent use and
// must not be changed after its first use.
type Client struct {
	Base  string // such as "http://127.0.0.1:8080"
	Token string // sent as bearer token; "" sends none
	HTTP  *http.Client
}

// Error is an answer of the server that is not a success.
type Error struct {
	Status     int    // 0: it came as the last event of a stream
	Code       string // one of the wire.Code constants; "" when the answer was not the server's
	Message    string
	RetryAfter time.Duration // 0: not said
}

// Error names the status, the code and the server's own words.
func (e *Error) Error() string {
	if e.Status == 0 { // the last event of a stream
		return fmt.Sprintf("client: %s: %s", e.Code, e.Message)
	}
	return fmt.Sprintf("client: %d %s: %s", e.Status, e.Code, e.Message)
}

// Code returns the code of an *Error in err's chain, or "".
func Code(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// Health asks the server whether it and its backend are well. A server that says 503 is an answer too, hence the bool.
func (c *Client) Health(ctx context.Context) (ok bool, body json.RawMessage, err error) {
	resp, err := c.send(ctx, http.MethodGet, "/health", nil, "")
	if err != nil {
		return false, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return resp.StatusCode == http.StatusOK, body, err
}

// call sends in as JSON, when it is not nil, and decodes the answer into out, when that is not nil.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	resp, err := c.doJSON(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(out); err != nil {
		return fmt.Errorf("client: decode answer of %s %s: %w", method, path, err)
	}
	return nil
}

func (c *Client) doJSON(ctx context.Context, method, path string, in any) (*http.Response, error) {
	if in == nil {
		return c.do(ctx, method, path, nil, "")
	}
	b, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("client: encode request: %w", err)
	}
	return c.do(ctx, method, path, bytes.NewReader(b), "application/json")
}

// do is send that turns every answer but a 2xx into an *Error.
func (c *Client) do(ctx context.Context, method, path string, body io.Reader, kind string) (*http.Response, error) {
	resp, err := c.send(ctx, method, path, body, kind)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return nil, errorOf(resp)
	}
	return resp, nil
}

func (c *Client) send(ctx context.Context, method, path string, body io.Reader, kind string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.Base, "/")+path, body)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	hc := c.HTTP
	if hc == nil {
		hc = http.DefaultClient
	}
	resp, err := hc.Do(req)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return resp, nil
}

func errorOf(resp *http.Response) error {
	e := &Error{Status: resp.StatusCode}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		e.RetryAfter = time.Duration(s) * time.Second
	}
	b, _ := io.ReadAll(io.LimitReader(resp.Body, wire.MaxBody))
	var body wire.Error
	if json.Unmarshal(b, &body) == nil && body.Code != "" {
		e.Code, e.Message = body.Code, body.Error
	} else {
		e.Message = http.StatusText(resp.StatusCode)
	}
	return e
}

// sandboxPath returns the path of a sandbox's route, or ErrNoID: with an empty id it would be that of another route.
func sandboxPath(id, rest string) (string, error) {
	if id == "" {
		return "", fmt.Errorf("%w of a sandbox", ErrNoID)
	}
	return "/v1/sandboxes/" + url.PathEscape(id) + rest, nil
}
