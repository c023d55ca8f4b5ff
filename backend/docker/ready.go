package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/keepwell-go/keepwell/backend"
)

const (
	firstLook = 5 * time.Millisecond // between the first two tries to reach a runner
	lastLook  = 100 * time.Millisecond
	oneTry    = 2 * time.Second
	logLines  = "10"
	maxLines  = 4 << 10 // bytes of a log in an error
)

// newWeb returns the client for the runners. It asks each runner once, so connections are not kept.
func newWeb() *http.Client {
	return &http.Client{Timeout: oneTry, Transport: &http.Transport{
		DialContext: (&net.Dialer{Timeout: oneTry}).DialContext, DisableKeepAlives: true,
	}}
}

// await returns the endpoint once the runner has answered, or why it never will.
func (b *Backend) await(ctx context.Context, c *creation) (backend.Endpoint, error) {
	wait := firstLook
	for {
		ep, err := b.lookAt(ctx, c)
		if err != nil || ep.Address != "" && b.answers(ctx, ep) {
			return ep, err
		}
		if err := b.sleep(ctx, wait); err != nil {
			return backend.Endpoint{}, fmt.Errorf("its runner has not answered: %w", err)
		}
		wait = min(2*wait, lastLook)
	}
}

// lookAt returns the endpoint of a running container, and an error of one that has ended.
func (b *Backend) lookAt(ctx context.Context, c *creation) (backend.Endpoint, error) {
	bx, err := b.one(ctx, c.spec.ID)
	if err != nil {
		return backend.Endpoint{}, err
	}
	switch {
	case bx.container == nil || bx.container.ID != c.container:
		return backend.Endpoint{}, errors.New("it was removed while it was being created")
	case bx.container.State == container.StateExited || bx.container.State == container.StateDead:
		return backend.Endpoint{}, fmt.Errorf("it ended at once: %s; its last lines: %s", bx.container.Status, b.lines(ctx, c.container))
	}
	ep, _ := b.endpoint(c.spec.Ref, bx.container)
	return ep, nil
}

func (b *Backend) answers(ctx context.Context, ep backend.Endpoint) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ep.Address+"/health", nil)
	if err != nil {
		return false
	}
	resp, err := b.web.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// lines returns the last lines of a container's log.
func (b *Backend) lines(ctx context.Context, id string) string {
	logs, err := b.api.ContainerLogs(ctx, id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: logLines})
	if err != nil {
		return "(unreadable: " + err.Error() + ")"
	}
	defer logs.Close()
	var buf bytes.Buffer
	if _, err := stdcopy.StdCopy(&buf, &buf, io.LimitReader(logs, maxLines)); err != nil && buf.Len() == 0 {
		return "(unreadable: " + err.Error() + ")"
	}
	if buf.Len() == 0 {
		return "(none)"
	}
	return strings.ReplaceAll(strings.TrimSpace(buf.String()), "\n", " | ")
}
