package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// ReadFile returns the content of a file of a sandbox's workspace. The caller closes it.
func (c *Client) ReadFile(ctx context.Context, sandbox, path string) (io.ReadCloser, error) {
	p, err := filePath(sandbox, "read", url.Values{"path": {path}})
	if err != nil {
		return nil, err
	}
	resp, err := c.do(ctx, http.MethodGet, p, nil, "")
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// WriteFile writes a file whole: readers see the old content or the new one. Missing directories are made.
func (c *Client) WriteFile(ctx context.Context, sandbox, path string, content io.Reader) error {
	p, err := filePath(sandbox, "write", url.Values{"path": {path}, "mkdir": {"1"}})
	if err != nil {
		return err
	}
	resp, err := c.do(ctx, http.MethodPut, p, content, "application/octet-stream")
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// ListFiles returns the entries of a directory.
func (c *Client) ListFiles(ctx context.Context, sandbox, path string) ([]wire.FileEntry, error) {
	p, err := filePath(sandbox, "list", url.Values{"path": {path}})
	if err != nil {
		return nil, err
	}
	var got wire.FileList
	err = c.call(ctx, http.MethodGet, p, nil, &got)
	return got.Entries, err
}

// RemoveFile deletes a file, or with recursive a directory and all in it.
func (c *Client) RemoveFile(ctx context.Context, sandbox, path string, recursive bool) error {
	q := url.Values{"path": {path}}
	if recursive {
		q.Set("recursive", "1")
	}
	p, err := filePath(sandbox, "delete", q)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodDelete, p, nil, nil)
}

func filePath(sandbox, verb string, q url.Values) (string, error) {
	return sandboxPath(sandbox, "/files/"+verb+"?"+q.Encode())
}
