package enginetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/moby/moby/client"
)

// Leftovers names everything on the engine that belongs to an owner.
func (e *Engine) Leftovers(ctx context.Context, owner string) ([]string, error) {
	f := client.Filters{}.Add("label", "keepwell.owner="+owner)
	cs, err := e.API.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: f})
	if err != nil {
		return nil, err
	}
	vs, err := e.API.VolumeList(ctx, client.VolumeListOptions{Filters: f})
	if err != nil {
		return nil, err
	}
	var left []string
	for _, c := range cs.Items {
		left = append(left, fmt.Sprintf("container %s (%s)", c.Names, c.State))
	}
	for _, v := range vs.Items {
		left = append(left, "volume "+v.Name)
	}
	return left, nil
}

// Clean fails the test for what an owner has left, and removes it.
func (e *Engine) Clean(t testing.TB, owner string) {
	t.Helper()
	ctx := context.Background()
	left, err := e.Leftovers(ctx, owner)
	if err != nil {
		t.Errorf("leftovers of %s: %v", owner, err)
	}
	for _, l := range left {
		if !t.Failed() {
			t.Errorf("%s is left of owner %s", l, owner)
		}
	}
	f := client.Filters{}.Add("label", "keepwell.owner="+owner)
	cs, _ := e.API.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: f})
	for _, c := range cs.Items {
		_, _ = e.API.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	}
	vs, _ := e.API.VolumeList(ctx, client.VolumeListOptions{Filters: f})
	for _, v := range vs.Items {
		_, _ = e.API.VolumeRemove(ctx, v.Name, client.VolumeRemoveOptions{})
	}
	ns, _ := e.API.NetworkList(ctx, client.NetworkListOptions{Filters: f})
	for _, n := range ns.Items {
		_, _ = e.API.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{})
	}
}
