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

// refused says what a failed step of a create means once nothing of the create is left: ErrQuota, ErrInvalid or as it is.
func refused(err error) error {
	text := strings.ToLower(err.Error())
	for _, words := range full {
		if strings.Contains(text, words) {
			return fmt.Errorf("%w: %w", backend.ErrQuota, err)
		}
	}
	if errdefs.IsInvalidArgument(err) || strings.Contains(text, "argument list too long") {
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
