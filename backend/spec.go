package backend

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The bounds of a Spec. They are what the narrowest of the engines can carry as a name, a label and an environment.
const (
	maxID       = 63
	maxTenant   = 128
	maxImage    = 512
	maxEnv      = 128
	maxEnvName  = 256
	maxEnvValue = 32 << 10
)

// CheckID returns an error that is ErrInvalid unless id has 1 to 63 of a-z, 0-9 and '-', the first and the last of them not '-'. Such an
// id can be a DNS label, a directory, a container and a Pod. It does not allocate for a good id.
func CheckID(id string) error {
	if len(id) == 0 || len(id) > maxID {
		return fmt.Errorf("%w: id has %d bytes, 1 to %d are allowed", ErrInvalid, len(id), maxID)
	}
	for i := range len(id) {
		c := id[i]
		inner := i > 0 && i < len(id)-1
		if !isLower(c) && !isDigit(c) && (c != '-' || !inner) {
			return fmt.Errorf("%w: id %q: byte %d is not one of a-z, 0-9 or an inner '-'", ErrInvalid, id, i)
		}
	}
	return nil
}

// Check returns an error that is ErrInvalid unless the ID passes CheckID and the Instance is 1 to 63 letters, digits and inner
// '.', '_' or '-': what fits a label of every engine.
func (r Ref) Check() error {
	if err := CheckID(r.ID); err != nil {
		return err
	}
	if len(r.Instance) == 0 || len(r.Instance) > maxID {
		return fmt.Errorf("%w: instance of %q has %d bytes, 1 to %d are allowed", ErrInvalid, r.ID, len(r.Instance), maxID)
	}
	for i := range len(r.Instance) {
		c := r.Instance[i]
		inner := i > 0 && i < len(r.Instance)-1
		if !isLower(c|0x20) && !isDigit(c) && (!inner || !strings.ContainsRune("._-", rune(c))) {
			return fmt.Errorf("%w: instance of %q: byte %d is not a letter, a digit or an inner '.', '_' or '-'", ErrInvalid, r.ID, i)
		}
	}
	return nil
}

// Check returns nil if s can be asked of any backend, else an error that is ErrInvalid and names the field, the number and the
// limit. Every backend calls it first in Create, so that a refused spec leaves nothing behind. Values of Env are never quoted.
func (s Spec) Check() error {
	if err := s.Ref.Check(); err != nil {
		return err
	}
	if err := checkText("tenant", s.Tenant, maxTenant); err != nil {
		return err
	}
	if err := checkText("image", s.Image, maxImage); err != nil {
		return err
	}
	if _, err := ProfileOf(s.Profile); err != nil {
		return err
	}
	if err := s.checkNumbers(); err != nil {
		return err
	}
	return checkEnv(s.Env)
}

func (s Spec) checkNumbers() error {
	if math.IsNaN(s.CPUs) || math.IsInf(s.CPUs, 0) {
		return fmt.Errorf("%w: cpus is %v, a finite number is needed", ErrInvalid, s.CPUs)
	}
	for _, n := range []struct {
		name     string
		negative bool
		value    any
	}{
		{"memory_mb", s.MemoryMB < 0, s.MemoryMB},
		{"cpus", s.CPUs < 0, s.CPUs},
		{"pids", s.PIDs < 0, s.PIDs},
		{"ttl", s.TTL < 0, s.TTL},
		{"idle timeout", s.Idle < 0, s.Idle},
	} {
		if n.negative {
			return fmt.Errorf("%w: %s is %v, at least 0 is needed", ErrInvalid, n.name, n.value)
		}
	}
	return nil
}

func checkText(name, text string, limit int) error {
	if len(text) > limit {
		return fmt.Errorf("%w: %s has %d bytes, at most %d are allowed", ErrInvalid, name, len(text), limit)
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return fmt.Errorf("%w: %s %q has control characters or is not UTF-8", ErrInvalid, name, text)
	}
	return nil
}

// checkEnv looks at the names in order, so that one spec always gives one error.
func checkEnv(env map[string]string) error {
	if len(env) > maxEnv {
		return fmt.Errorf("%w: env has %d names, at most %d are allowed", ErrInvalid, len(env), maxEnv)
	}
	names := make([]string, 0, len(env))
	for name := range env {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := checkVariable(name, env[name]); err != nil {
			return err
		}
	}
	return nil
}

func checkVariable(name, value string) error {
	switch {
	case len(name) == 0 || len(name) > maxEnvName:
		return fmt.Errorf("%w: env has a name of %d bytes, 1 to %d are allowed", ErrInvalid, len(name), maxEnvName)
	case strings.ContainsAny(name, "=\x00"):
		return fmt.Errorf("%w: env name %q has '=' or NUL in it", ErrInvalid, name)
	case len(value) > maxEnvValue:
		return fmt.Errorf("%w: env %q has a value of %d bytes, at most %d are allowed", ErrInvalid, name, len(value), maxEnvValue)
	case strings.IndexByte(value, 0) >= 0:
		return fmt.Errorf("%w: env %q has NUL in its value", ErrInvalid, name)
	}
	return nil
}

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
func isDigit(c byte) bool { return '0' <= c && c <= '9' }
