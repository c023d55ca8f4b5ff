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
	maxAnswer   = 64 << 10        // bytes of its answer
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

// aboutProcess returns a request about one process of b, by the id that its runner knows.
func (rs *runners) aboutProcess(ctx context.Context, b *box, method, guest string) *http.Request {
	return rs.request(ctx, b.Endpoint, method, "/v1/sandboxes/"+b.ID+"/processes/"+guest, "")
}

// activity asks the runner what is going on in sb.
func (rs *runners) activity(ctx context.Context, sb backend.Sandbox) (act wire.Activity, err error) {
	if err := rs.ask(ctx, sb, "/v1/sandboxes/"+sb.ID+"/activity", &act); err != nil {
		return wire.Activity{}, err
	}
	return act, nil
}

// ask reads a small answer of the runner of sb.
func (rs *runners) ask(ctx context.Context, sb backend.Sandbox, path string, into any) error {
	ctx, cancel := rs.clock.WithTimeout(ctx, askBudget)
	defer cancel()
	resp, err := rs.transport.RoundTrip(rs.request(ctx, sb.Endpoint, http.MethodGet, path, ""))
	if err != nil {
		return fmt.Errorf("runner of %q: %w", sb.ID, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("it answered %d", resp.StatusCode)
	}
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		return fmt.Errorf("runner of %q: %s: %w", sb.ID, path, err)
	}
	return nil
}

// protocol makes sure that the runner serves sb, and returns the version of the protocol that it speaks. One that is not spoken here
// is a *protocolError.
func (rs *runners) protocol(ctx context.Context, sb backend.Sandbox) (int, error) {
	act, err := rs.activity(ctx, sb)
	if err != nil {
		return 0, err
	}
	got := act.Protocol
	if got == 0 { // it is older than that field
		var h wire.Health
		if err := rs.ask(ctx, sb, "/health", &h); err != nil {
			return 0, err
		}
		got = h.Protocol
	}
	if got < wire.OldestProtocol || got > wire.Protocol {
		return 0, &protocolError{id: sb.ID, got: got}
	}
	return got, nil
}

// protocolError is a runner that is too old or too new for this server.
type protocolError struct {
	id  string
	got int
}

func (e *protocolError) Error() string {
	return fmt.Sprintf("the runner of %q speaks protocol %d, this server speaks %d to %d", e.id, e.got, wire.OldestProtocol, wire.Protocol)
}
