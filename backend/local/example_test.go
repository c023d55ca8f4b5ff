//go:build linux

package local_test

import (
	"context"
	"fmt"
	"os"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/local"
)

// A sandbox outlives the Backend that created it: the next one finds it running. Down ends everything.
func Example() {
	dir, err := os.MkdirTemp("", "kw")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()

	first, err := local.Open(local.Config{StateDir: dir})
	if err != nil {
		panic(err)
	}
	_, err = first.Create(ctx, backend.Spec{Ref: backend.Ref{ID: "demo", Instance: "1"}, Tenant: "me"})
	fmt.Println("created:", err == nil)
	first.Close()

	next, err := local.Open(local.Config{StateDir: dir})
	if err != nil {
		panic(err)
	}
	defer next.Close()
	snap, err := next.List(ctx)
	fmt.Println("found:", snap.Sandboxes[0].ID, snap.Sandboxes[0].Running, err)
	n, err := next.Down(ctx)
	fmt.Println("stopped:", n, err)
	// Output:
	// created: true
	// found: demo true <nil>
	// stopped: 1 <nil>
}
