package docker

import (
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/keepwell-go/keepwell/backend"
)

// full are the words in which an engine says that it has no room. It has no code for it.
var full = []string{
	"no space left on device", "disk quota exceeded", "too many open files", "cannot allocate memory",
	"non-overlapping ipv4 address pool", "no available ipv4 addresses", "resource temporarily unavailable",
}

// never are the words in which an engine says that there is no such image, where it has begun to answer and no code is left to it.
var never = []string{"manifest unknown", "no matching manifest", "pull access denied", "repository does not exist"}

// notNow are those about an image that may come yet. A client may read them, and not what stands around them: addresses of registries,
// proxies and name servers.
var notNow = []string{
	"toomanyrequests", "no such host", "connection refused", "connection reset", "network is unreachable", "no route to host",
	"handshake timeout", "i/o timeout", "deadline exceeded", "request canceled", "certificate signed by unknown authority",
	"certificate has expired", "server gave http response to https client", "no space left on device", "unexpected eof",
}

// says returns which of some words err has, or "".
func says(err error, words []string) string {
	text := strings.ToLower(err.Error())
	for _, w := range words {
		if strings.Contains(text, w) {
			return w
		}
	}
	return ""
}

// refused says what a failed step of a create means once nothing of the create is left: ErrQuota, ErrInvalid or as it is.
func refused(err error) error {
	if says(err, full) != "" {
		return fmt.Errorf("%w: %w", backend.ErrQuota, err)
	}
	if errdefs.IsInvalidArgument(err) || says(err, []string{"argument list too long"}) != "" {
		return fmt.Errorf("%w: %w", backend.ErrInvalid, err)
	}
	return err
}

// veiled is an error whose meaning for the contract is taken away: what it says of one step is not true of the whole call.
type veiled struct{ text string }

func (v veiled) Error() string { return v.text }

// unclear returns err as one that says nothing about what the call left.
func unclear(err error) error {
	for _, says := range []error{backend.ErrConflict, backend.ErrUnavailable, backend.ErrQuota, backend.ErrInvalid} {
		if errors.Is(err, says) {
			return veiled{err.Error()}
		}
	}
	return err
}
