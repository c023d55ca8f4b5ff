package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// maxAnswer bounds what is read of an answer: the list of a hundred thousand sandboxes.
const maxAnswer = 64 << 20

// call asks the host, which it starts when nobody listens: then nothing of the call can have been done yet.
func (b *Backend) call(ctx context.Context, method, path string, in, out any) error {
	err := b.ask(ctx, method, path, in, out)
	if !unreached(err) {
		return err
	}
	if err := b.ensure(ctx); err != nil {
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	if err = b.ask(ctx, method, path, in, out); unreached(err) {
		return fmt.Errorf("local: %w: %w", backend.ErrUnavailable, err)
	}
	return err
}

// errUnreached is returned by ask when the request was not sent.
var errUnreached = errors.New("no host runner answers")

func unreached(err error) bool { return errors.Is(err, errUnreached) }

// ask makes one request of the host that is there. in and out may be nil.
func (b *Backend) ask(ctx context.Context, method, path string, in, out any) error {
	req, err := b.request(ctx, method, path, in)
	if err != nil {
		return err
	}
	resp, err := b.client.Do(req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" && ctx.Err() == nil {
			return fmt.Errorf("%w: %w", errUnreached, op.Err)
		}
		return fmt.Errorf("local: no answer of the host runner: %w", err)
	}
	defer resp.Body.Close()
	body := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode == http.StatusOK {
		if out == nil {
			return nil
		}
		if err := body.Decode(out); err != nil {
			return fmt.Errorf("local: answer of the host runner: %w", err)
		}
		return nil
	}
	var w wire.Error
	if err := body.Decode(&w); err != nil || w.Error == "" {
		return fmt.Errorf("local: the host runner answered %s", resp.Status)
	}
	return errorOf(w)
}

func (b *Backend) request(ctx context.Context, method, path string, in any) (*http.Request, error) {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("local: %w", err)
		}
		body = bytes.NewReader(raw)
	}
	key, err := b.usable()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://host"+path, body)
	if err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	if path != sandboxesPath {
		req.Header["Idempotency-Key"] = nil // all but a create can be asked again where a connection turns out to be dead
	}
	return req, nil
}

// usable returns the key, which the first host of a state directory makes before it listens.
func (b *Backend) usable() (string, error) {
	b.mu.Lock()
	key, closed := b.key, b.closed
	b.mu.Unlock()
	if closed {
		return "", fmt.Errorf("local: %w: closed", backend.ErrUnavailable)
	}
	if key != "" {
		return key, nil
	}
	key, err := readKey(b.dir)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errUnreached, err)
	}
	b.mu.Lock()
	b.key = key
	b.mu.Unlock()
	return key, nil
}

// ping asks the host who it is.
func (b *Backend) ping(ctx context.Context) (info, error) {
	var got info
	err := b.ask(ctx, http.MethodGet, pingPath, nil, &got)
	if unreached(err) {
		err = fmt.Errorf("local: %w: %w", backend.ErrUnavailable, err)
	}
	return got, err
}
