package refserver

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

const (
	askBudget   = 5 * time.Second // of a question to a runner that needs no work
	maxActivity = 64 << 10        // bytes of its answer
	idleRunner  = 30 * time.Second
	idlePerHost = 64
	readAhead   = 32 << 10 // bytes read from a runner at once
	unixSuffix  = ".unix"
)

// runners speaks to the runners of all sandboxes. Connections are kept by address, so that sandboxes behind one runner share them
// and those that are idle for long cost none.
type runners struct {
	transport *http.Transport
	clock     clock.Clock
}

func newRunners(c clock.Clock) *runners {
	return &runners{clock: c, transport: &http.Transport{
		DialContext:         dial,
		DisableCompression:  true,
		MaxIdleConnsPerHost: idlePerHost,
		IdleConnTimeout:     idleRunner,
		ReadBufferSize:      readAhead,
	}}
}

// close ends connections that are not in use.
func (rs *runners) close() { rs.transport.CloseIdleConnections() }

// hostOf spells an endpoint as the host of a URL, by which the transport keeps connections apart.
func hostOf(ep backend.Endpoint) string {
	if ep.Network == "unix" {
		return hex.EncodeToString([]byte(ep.Address)) + unixSuffix
	}
	return ep.Address
}

func dial(ctx context.Context, _, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: askBudget}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	path, isUnix := strings.CutSuffix(host, unixSuffix)
	if !isUnix {
		return d.DialContext(ctx, "tcp", addr)
	}
	name, err := hex.DecodeString(path)
	if err != nil {
		return nil, err
	}
	return d.DialContext(ctx, "unix", string(name))
}

// request returns a request for the runner at ep, which carries what that runner expects of whoever asks.
func (rs *runners) request(ctx context.Context, ep backend.Endpoint, method, path, query string) *http.Request {
	r := &http.Request{
		Method: method, Host: "runner", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		URL:    &url.URL{Scheme: "http", Host: hostOf(ep), Path: path, RawQuery: query},
		Header: http.Header{"User-Agent": nil},
	}
	if ep.Token != "" {
		r.Header["Authorization"] = []string{"Bearer " + ep.Token}
	}
	return r.WithContext(ctx)
}

// activity asks the runner what is going on in sb.
func (rs *runners) activity(ctx context.Context, sb backend.Sandbox) (act wire.Activity, err error) {
	ctx, cancel := rs.clock.WithTimeout(ctx, askBudget)
	defer cancel()
	resp, err := rs.transport.RoundTrip(rs.request(ctx, sb.Endpoint, http.MethodGet, "/v1/sandboxes/"+sb.ID+"/activity", ""))
	if err != nil {
		return act, fmt.Errorf("runner of %q: %w", sb.ID, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxActivity))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("it answered %d", resp.StatusCode)
	}
	if err == nil {
		err = json.Unmarshal(b, &act)
	}
	if err != nil {
		return wire.Activity{}, fmt.Errorf("runner of %q: activity: %w", sb.ID, err)
	}
	return act, nil
}
