package memory_test

import (
	"context"
	"fmt"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
)

// A create whose answer is lost after it took effect: the caller sees a time-out, a list finds the sandbox.
func ExampleEngine_Inject() {
	b := memory.New(memory.Config{})
	lift := b.Engine().Inject(memory.Fault{Call: "create", After: true, Hang: true})
	defer lift()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := b.Create(ctx, backend.Spec{Ref: backend.Ref{ID: "box", Instance: "i1"}})
	fmt.Println(err)

	snap, _ := b.List(context.Background())
	for _, s := range snap.Sandboxes {
		fmt.Println("found:", s.ID, s.Instance)
	}
	// Output:
	// memory: create "box": context deadline exceeded
	// found: box i1
}

// Two replicas share an engine; another installation on the same engine sees nothing of theirs.
func ExampleEngine_Open() {
	engine := memory.NewEngine(memory.Config{})
	one, two, other := engine.Open("team-a"), engine.Open("team-a"), engine.Open("team-b")
	_, err := one.Create(context.Background(), backend.Spec{Ref: backend.Ref{ID: "box", Instance: "i1"}})
	fmt.Println(err)
	for _, b := range []*memory.Backend{two, other} {
		snap, _ := b.List(context.Background())
		fmt.Println(b.Owner(), len(snap.Sandboxes))
	}
	// Output:
	// <nil>
	// team-a 1
	// team-b 0
}
