package wire

import (
	"errors"
	"fmt"
)

// MaxProcessID is how many characters the id of a process may have.
const MaxProcessID = 64

// ErrPID is returned for an id that is all digits: such a number names a process of the operating system and is used again for
// others, so it is never an id here.
var ErrPID = errors.New("a process is addressed by its id, not by a pid")

// CheckProcessID returns an error unless id is well-formed: 1 to MaxProcessID letters, digits, _ and -, not digits alone.
func CheckProcessID(id string) error {
	if id == "" || len(id) > MaxProcessID {
		return fmt.Errorf("process id has %d characters; it must have 1 to %d", len(id), MaxProcessID)
	}
	digits := true
	for _, c := range []byte(id) {
		digit := '0' <= c && c <= '9'
		digits = digits && digit
		if !digit && (c < 'a' || 'z' < c) && (c < 'A' || 'Z' < c) && c != '_' && c != '-' {
			return fmt.Errorf("process id %.80q has characters other than letters, digits, _ and -", id)
		}
	}
	if digits {
		return fmt.Errorf("%w: %s", ErrPID, id)
	}
	return nil
}
