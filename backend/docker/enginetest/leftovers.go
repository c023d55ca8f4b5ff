package enginetest

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/moby/moby/api/types/container"
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

// Total is what an engine has, of everybody.
type Total struct{ Containers, Volumes, Networks int }

// Count counts.
func (e *Engine) Count(ctx context.Context) (n Total, err error) {
	cs, err := e.API.ContainerList(ctx, client.ContainerListOptions{All: true})
	if err != nil {
		return n, err
	}
	vs, err := e.API.VolumeList(ctx, client.VolumeListOptions{})
	if err != nil {
		return n, err
	}
	ns, err := e.API.NetworkList(ctx, client.NetworkListOptions{})
	return Total{len(cs.Items), len(vs.Items), len(ns.Items)}, err
}

// Multiply makes n more containers with the labels of a sandbox, whose ids are id-0 and so on. They are never started, which a list
// does not mind.
func (e *Engine) Multiply(ctx context.Context, owner, id string, n int) error {
	got, err := e.API.ContainerInspect(ctx, "kw-"+owner+"-"+id, client.ContainerInspectOptions{})
	if err != nil {
		return err
	}
	for i := range n {
		labels := maps.Clone(got.Container.Config.Labels)
		labels["keepwell.id"] = fmt.Sprintf("%s-%d", id, i)
		_, err := e.API.ContainerCreate(ctx, client.ContainerCreateOptions{
			Name:       "kw-" + owner + "-" + labels["keepwell.id"],
			Config:     &container.Config{Image: got.Container.Image, Cmd: []string{"true"}, Labels: labels},
			HostConfig: &container.HostConfig{NetworkMode: "none"},
		})
		if err != nil {
			return err
		}
	}
	return nil
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
	e.Wipe(owner)
}

// Wipe removes everything that belongs to an owner.
func (e *Engine) Wipe(owner string) {
	ctx := context.Background()
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
