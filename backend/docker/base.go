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

// once keeps the base after it was found or made. That somebody removes it is noticed by the next create.
type once struct {
	turn chan struct{} // capacity 1: full while somebody looks

	mu   sync.Mutex // guards the fields below
	base base       // zero: none yet
}

func (o *once) get() base {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.base
}

func (o *once) set(b base) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.base = b
}

// shared returns the base. The image, any one, is what the helper is made of that fills the runner's volume.
func (b *Backend) shared(ctx context.Context, image string) (base, error) {
	had := b.base.get()
	if stands, err := b.stands(ctx, had); stands || err != nil {
		return had, err
	}
	select {
	case b.base.turn <- struct{}{}:
		defer func() { <-b.base.turn }()
	case <-ctx.Done():
		return base{}, ctx.Err()
	}
	if got := b.base.get(); got != had {
		return got, nil // somebody was faster
	}
	var made base
	var err error
	if made.network, err = b.network(ctx); err != nil {
		return base{}, unasked("network", err)
	}
	if made.runner, err = b.runnerVolume(ctx, image); err != nil {
		return base{}, unasked("runner volume", err)
	}
	b.base.set(made)
	return made, nil
}

// stands says whether a base is still there: to prune an engine is to remove what nothing uses at the moment.
func (b *Backend) stands(ctx context.Context, s base) (bool, error) {
	if s == (base{}) {
		return false, nil
	}
	nets, err := b.api.NetworkList(ctx, client.NetworkListOptions{Filters: client.Filters{}.Add("id", s.network)})
	if err != nil {
		return false, unasked("network", err)
	}
	filled, err := b.isFilled(ctx, s.runner)
	if err != nil {
		return false, unasked("runner volume", err)
	}
	return filled && len(nets.Items) > 0, nil
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
