package runner_test

import (
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keepwell-go/keepwell/backend/runner"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// Whoever may ask may ask without end: that must fill nobody's disk.
func TestTheMistakesOfClientsAreNotLogged(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	c := serveFiles(t, runner.Config{Logger: zap.New(core), MaxFile: 8})
	c.refused("POST", "/exec", "no json", 400, wire.CodeBadRequest)
	c.refused("PUT", "/files/write?path=f", "more than eight", 413, wire.CodePayloadTooLarge)
	c.refused("GET", "/files/read?path=none", nil, 404, wire.CodeNotFound)
	if logs.Len() != 0 {
		t.Errorf("logged %+v", logs.All())
	}
}
