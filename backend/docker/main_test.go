package docker_test

import (
	"os"
	"testing"

	"github.com/keepwell-go/keepwell/backend/docker/enginetest"
)

// shared is the engine of all tests here.
var shared enginetest.Shared

// TestMain makes the test binary a program that creates a sandbox where it is told to.
func TestMain(m *testing.M) {
	if os.Getenv(createVariable) != "" {
		os.Exit(createAndDie())
	}
	code := m.Run()
	shared.Stop()
	os.Exit(code)
}

func engine(t testing.TB) *enginetest.Engine {
	t.Helper()
	return shared.Engine(t)
}
