package client

import (
	"context"
	"net/http"
	"time"
)

// DrainStatus says whether a server is being drained, and what it still serves.
type DrainStatus struct {
	Draining   bool     `json:"draining"`
	SinceMS    int64    `json:"since_ms"` // Unix milliseconds; 0: it is not being drained
	Sandboxes  int      `json:"sandboxes"`
	SandboxIDs []string `json:"sandbox_ids"`
	Busy       []Busy   `json:"busy"` // not known to be idle
}

// Busy is a sandbox that is not known to be idle, and why.
type Busy struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

// Drain makes the server refuse creates and adopt nothing from now on, and returns since when it has done so. There is no way back but
// a new server.
func (c *Client) Drain(ctx context.Context) (since time.Time, err error) {
	var got DrainStatus
	err = c.call(ctx, http.MethodPost, "/v1/drain", nil, &got)
	return time.UnixMilli(got.SinceMS), err
}

// DrainStatus says how far a drain is. It begins none, and the server asks its backend nothing.
func (c *Client) DrainStatus(ctx context.Context) (got DrainStatus, err error) {
	return got, c.call(ctx, http.MethodGet, "/v1/drain", nil, &got)
}
