package docker

import (
	"context"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
)

// base is what the sandboxes of an owner share on the engine.
type base struct {
	network string // its id
	runner  string // name of the volume that has the program
}

// once keeps the base after it was found or made.
type once struct {
	turn chan struct{} // capacity 1: full while somebody looks

	mu   sync.Mutex // guards the fields below
	done bool
	base base
}

func (o *once) get() (base, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.base, o.done
}

func (o *once) set(b base, done bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.base, o.done = b, done
}

// shared returns the base. The image, any one, is what the helper is made of that fills the runner's volume.
func (b *Backend) shared(ctx context.Context, image string) (base, error) {
	if got, ok := b.base.get(); ok {
		return got, nil
	}
	select {
	case b.base.turn <- struct{}{}:
		defer func() { <-b.base.turn }()
	case <-ctx.Done():
		return base{}, ctx.Err()
	}
	if got, ok := b.base.get(); ok {
		return got, nil
	}
	var made base
	var err error
	if made.network, err = b.network(ctx); err != nil {
		return base{}, unasked("network", err)
	}
	if made.runner, err = b.runnerVolume(ctx, image); err != nil {
		return base{}, unasked("runner volume", err)
	}
	b.base.set(made, true)
	return made, nil
}

// network returns the id of the network to join. An engine may make two networks of one name, so all replicas take the oldest.
func (b *Backend) network(ctx context.Context) (string, error) {
	if b.cfg.Network != "" {
		got, err := b.api.NetworkInspect(ctx, b.cfg.Network, client.NetworkInspectOptions{})
		return got.Network.ID, err
	}
	id, err := b.oldestNetwork(ctx)
	if id != "" || err != nil {
		return id, err
	}
	made, err := b.api.NetworkCreate(ctx, b.networkName(), client.NetworkCreateOptions{
		Driver: "bridge", Internal: b.cfg.NoEgress,
		Labels:  map[string]string{labelOwner: b.cfg.Owner, labelKind: kindNetwork},
		Options: map[string]string{"com.docker.network.bridge.enable_icc": "false"}, // sandboxes do not reach each other
	})
	if err != nil && !errdefs.IsConflict(err) {
		return "", err
	}
	if id, err = b.oldestNetwork(ctx); err != nil {
		return "", err
	}
	if id != made.ID && made.ID != "" {
		_, err = b.api.NetworkRemove(ctx, made.ID, client.NetworkRemoveOptions{})
	}
	return id, err
}

func (b *Backend) networkName() string {
	if b.cfg.NoEgress {
		return "kw-" + b.cfg.Owner + "-inside"
	}
	return "kw-" + b.cfg.Owner
}

func (b *Backend) oldestNetwork(ctx context.Context) (string, error) {
	got, err := b.api.NetworkList(ctx, client.NetworkListOptions{Filters: b.filter("")})
	if err != nil {
		return "", err
	}
	var oldest network.Summary
	for _, n := range got.Items {
		if n.Name == b.networkName() && (oldest.ID == "" || n.Created.Before(oldest.Created)) {
			oldest = n
		}
	}
	return oldest.ID, nil
}
