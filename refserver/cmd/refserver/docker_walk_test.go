package main

import (
	"testing"

	"github.com/keepwell-go/keepwell/backend/docker/enginetest"
)

// onDocker returns the variables that make servers use the Docker backend. In the end nothing may be left of the owner.
func onDocker(t *testing.T, e *enginetest.Engine, owner string) []string {
	t.Helper()
	t.Cleanup(func() { e.Clean(t, owner) })
	return []string{
		"KEEPWELL_BACKEND=docker", "KEEPWELL_OWNER=" + owner, "KEEPWELL_RUNNER_BINARY=" + e.Runner, "DOCKER_HOST=unix://" + e.Socket,
	}
}

// What the README shows for this machine is true of a Docker Engine word for word; R101, R112.
func TestTheWalksOfTheREADMEWorkOnDockerToo(t *testing.T) {
	e := shared.Engine(t)
	for name, block := range walks(t) {
		t.Run(name, func(t *testing.T) { walk(t, block, onDocker(t, e, "walk"+name)...) })
	}
}
