package registry_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/keepwell-go/keepwell/registry"
)

// A registry finds what it did not create: after a restart it is empty, and fills itself from the backend.
func ExampleRegistry_Resolve() {
	running := map[string]string{"web": "10.0.0.7:80"} // what the backend has
	r := registry.New(func(ctx context.Context, ids []string) (registry.Snapshot[string, string], error) {
		return registry.Snapshot[string, string]{Items: running, Complete: true}, nil
	}, registry.Config[string, string]{})
	defer r.Close()

	e, err := r.Resolve(context.Background(), "web")
	fmt.Println(e.Value, err)
	_, err = r.Resolve(context.Background(), "db")
	fmt.Println(err, errors.Is(err, registry.ErrNotFound))
	// Output:
	// 10.0.0.7:80 <nil>
	// registry: not found: db true
}

// Whoever destroys an object takes its key first. A list that is on its way while the object is destroyed still shows it,
// and does not bring it back.
func ExampleRegistry_Take() {
	started, finish := make(chan bool), make(chan bool)
	r := registry.New(func(ctx context.Context, ids []string) (registry.Snapshot[string, string], error) {
		seen := map[string]string{"web": "10.0.0.7:80"} // still there when the backend looked
		started <- true
		<-finish
		return registry.Snapshot[string, string]{Items: seen, Complete: true}, nil
	}, registry.Config[string, string]{})
	defer r.Close()

	h, err := r.Hold("web")
	if err != nil {
		fmt.Println(err)
		return
	}
	h.Fill("10.0.0.7:80") // created

	synced := make(chan error)
	go func() { _, err := r.Sync(context.Background()); synced <- err }()
	<-started

	if h, err = r.Take("web"); err != nil {
		fmt.Println(err)
		return
	}
	defer h.Cancel() // puts the entry back unless the teardown is confirmed below
	h.Commit()
	_, err = r.Hold("web")
	fmt.Println("a create meanwhile:", errors.As(err, new(*registry.HeldError)))
	h.Release() // the backend has confirmed

	finish <- true
	fmt.Println("Sync:", <-synced)
	_, ok := r.Lookup("web")
	fmt.Println("is it back?", ok)
	// Output:
	// a create meanwhile: true
	// Sync: <nil>
	// is it back? false
}
