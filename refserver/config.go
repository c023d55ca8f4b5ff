package refserver

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/bodylimit"
	"github.com/keepwell-go/keepwell/refserver/binding"
)

// minKey is the shortest secret, in bytes, from which tokens are derived that cannot be guessed.
const minKey = 16

// Config says what a Server serves and within which limits. Backend and Key are required, and Token unless NoAuth is set.
type Config struct {
	Backend     backend.Backend
	BackendName string          // what answers call it, the same on all replicas; "": "custom"
	NoImages    bool            // Backend has none and would ignore which one a create names, so such a create is refused
	Budgets     backend.Budgets // of every call of Backend; its zero Clock and Logger are those of this Config

	// Bindings keeps which process an id means where runners name processes themselves. Nil: memory, so that after a restart
	// processes of such runners are known by their runner's ids alone. Of its rows a Server sees those of its Key and BackendName, and
	// forgets those of sandboxes that its Backend does not have. It is not closed by the Server.
	Bindings binding.Store

	Token  string // the admin token, accepted as Authorization: Bearer
	NoAuth bool   // accept every request; only for a listener that nobody else can reach
	Key    []byte // the secret that the sandboxes' own tokens are derived from, at least 16 bytes; the same on all replicas

	MaxSandboxes int           // how many may exist, those being created included; 0: 256
	MaxPerTenant int           // the same for each tenant; 0: no such limit
	TTLMax       time.Duration // the longest lifetime, and the one of a sandbox that asks for none; 0: 24 h
	IdleMax      time.Duration // the same for the idle timeout; 0: 30 min
	SweepEvery   time.Duration // between two sweeps; 0: 60 s
	MaxLinger    time.Duration // from Drain until a sweep stops what the Server created itself; 0: it never does

	MaxBody int64 // bytes of a JSON body; 0: wire.MaxBody, to which more is clamped
	MaxFile int64 // bytes of a written file; 0: wire.MaxFile, to which more is clamped

	Confinement []string // one sentence for each thing the machine can and cannot enforce, shown by /health
	Version     string   // shown by /health
	Clock       clock.Clock
	Logger      *zap.Logger
}

// check refuses what no Server can be made of, by name and reason.
func (c *Config) check() error {
	switch {
	case c.Backend == nil:
		return errors.New("refserver: Backend is missing")
	case c.Token == "" && !c.NoAuth:
		return errors.New("refserver: Token is empty, and NoAuth is not set")
	case strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return errors.New("refserver: Token has spaces, control or non-ASCII characters, which no header carries unchanged")
	case len(c.Key) < minKey:
		return fmt.Errorf("refserver: Key has %d bytes, at least %d are needed", len(c.Key), minKey)
	case c.MaxBody != 0 && c.MaxBody < wire.MinBody:
		return fmt.Errorf("refserver: MaxBody is %d bytes, at least %d are needed", c.MaxBody, wire.MinBody)
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"MaxSandboxes", int64(c.MaxSandboxes)},
		{"MaxPerTenant", int64(c.MaxPerTenant)},
		{"TTLMax", int64(c.TTLMax)},
		{"IdleMax", int64(c.IdleMax)},
		{"SweepEvery", int64(c.SweepEvery)},
		{"MaxLinger", int64(c.MaxLinger)},
		{"MaxFile", c.MaxFile},
	} {
		if n.value < 0 {
			return fmt.Errorf("refserver: %s is %d, at least 0 is needed", n.name, n.value)
		}
	}
	return nil
}

// withDefaults returns c with every zero field that has a default set to it.
func (c Config) withDefaults() Config {
	c.BackendName = or(c.BackendName, "custom")
	c.MaxSandboxes = or(c.MaxSandboxes, 256)
	c.TTLMax = or(c.TTLMax, 24*time.Hour)
	c.IdleMax = or(c.IdleMax, 30*time.Minute)
	c.SweepEvery = or(c.SweepEvery, time.Minute)
	if c.Clock == nil {
		c.Clock = clock.New()
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	if c.Budgets.Clock == nil {
		c.Budgets.Clock = c.Clock
	}
	if c.Budgets.Logger == nil {
		c.Budgets.Logger = c.Logger
	}
	c.MaxBody = bodylimit.Clamp(c.Logger, "MaxBody", or(c.MaxBody, wire.MaxBody), wire.MaxBody)
	c.MaxFile = bodylimit.Clamp(c.Logger, "MaxFile", or(c.MaxFile, wire.MaxFile), wire.MaxFile)
	return c
}

// or returns v, or def where v is zero.
func or[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}
