package client

import (
	"context"
	"net/http"
	"net/url"
)

// Sandbox is a sandbox as the server shows it. Times are Unix milliseconds; 0 in ExpiresAtMS and IdleTimeoutMS means never.
type Sandbox struct {
	ID            string `json:"id"`
	Instance      string `json:"instance"` // of this incarnation of the id
	Tenant        string `json:"tenant"`
	Profile       string `json:"profile"`
	State         string `json:"state"` // creating, running, stopped or destroying
	Backend       string `json:"backend"`
	CreatedAtMS   int64  `json:"created_at_ms"`
	ExpiresAtMS   int64  `json:"expires_at_ms"`
	IdleTimeoutMS int64  `json:"idle_timeout_ms"`
	Pinned        bool   `json:"pinned"`
	Token         string `json:"token,omitempty"` // the sandbox's own, in the answer to Create only
	Resumed       bool   `json:"resumed,omitempty"`
}

// CreateRequest says what to create. The zero value asks for the server's defaults.
type CreateRequest struct {
	ID            string            `json:"id,omitempty"`
	Tenant        string            `json:"tenant,omitempty"`
	Profile       string            `json:"profile,omitempty"`
	Image         string            `json:"image,omitempty"`
	Env           map[string]string `json:"env,omitempty"`
	TTLMS         int64             `json:"ttl_ms,omitempty"`
	IdleTimeoutMS int64             `json:"idle_timeout_ms,omitempty"`
	Limits        *Limits           `json:"limits,omitempty"`
	Pinned        bool              `json:"pinned,omitempty"`
}

// Limits bounds a sandbox. Zero fields ask for the profile's limits.
type Limits struct {
	MemoryMB int64   `json:"memory_mb,omitempty"`
	CPUs     float64 `json:"cpus,omitempty"`
	PIDs     int64   `json:"pids,omitempty"`
}

// Create makes a sandbox, or resumes the stopped one of the same id.
func (c *Client) Create(ctx context.Context, r CreateRequest) (sb Sandbox, err error) {
	return sb, c.call(ctx, http.MethodPost, "/v1/sandboxes", r, &sb)
}

// Get returns one sandbox, verified with the backend.
func (c *Client) Get(ctx context.Context, id string) (sb Sandbox, err error) {
	path, err := sandboxPath(id, "")
	if err != nil {
		return sb, err
	}
	return sb, c.call(ctx, http.MethodGet, path, nil, &sb)
}

// List returns the sandboxes that match the query parameters: tenant, state, fresh.
func (c *Client) List(ctx context.Context, query url.Values) ([]Sandbox, error) {
	path := "/v1/sandboxes"
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	var got struct {
		Sandboxes []Sandbox `json:"sandboxes"`
	}
	err := c.call(ctx, http.MethodGet, path, nil, &got)
	return got.Sandboxes, err
}

// Delete destroys a sandbox and its workspace. With ifIdle a busy one, or one that could not be asked, is left alone and the
// error has the code "busy". The outcome is "stopped" when this call ended it and "gone" when it was not there any more.
func (c *Client) Delete(ctx context.Context, id string, ifIdle bool) (outcome string, err error) {
	rest := ""
	if ifIdle {
		rest = "?if_idle=1"
	}
	return c.end(ctx, http.MethodDelete, id, rest)
}

// Stop ends a sandbox's processes and keeps its workspace, which the next Create of the same id goes on with.
func (c *Client) Stop(ctx context.Context, id string) (outcome string, err error) {
	return c.end(ctx, http.MethodPost, id, ":stop")
}

func (c *Client) end(ctx context.Context, method, id, rest string) (string, error) {
	path, err := sandboxPath(id, rest)
	if err != nil {
		return "", err
	}
	var got struct {
		Outcome string `json:"outcome"`
	}
	err = c.call(ctx, method, path, nil, &got)
	return got.Outcome, err
}
