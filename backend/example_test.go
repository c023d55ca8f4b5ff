package backend_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
)

// The life of a sandbox. A stop keeps its workspace, a destroy does not, and each says what it did.
func Example() {
	ctx := context.Background()
	b := backend.Budgets{}.Bound(memory.New(memory.Config{}))

	first := backend.Spec{Ref: backend.Ref{ID: "box", Instance: "i1"}, Tenant: "acme", TTL: time.Hour}
	if _, err := b.Create(ctx, first); err != nil {
		fmt.Println(err)
	}
	_, err := b.Create(ctx, first)
	fmt.Println("again:", errors.Is(err, backend.ErrConflict))

	out, _ := b.Stop(ctx, first.Ref)
	fmt.Println("stop:", out)

	second := first
	second.Instance = "i2" // a new incarnation of the same id
	made, _ := b.Create(ctx, second)
	fmt.Println("resumed:", made.Resumed)

	out, _ = b.Destroy(ctx, first.Ref) // a late destroy, meant for the first
	fmt.Println("late destroy:", out)
	out, _ = b.Destroy(ctx, second.Ref)
	fmt.Println("destroy:", out)
	// Output:
	// again: true
	// stop: stopped
	// resumed: true
	// late destroy: gone
	// destroy: stopped
}

// A destroy that gets no answer is neither done nor failed. Its caller is not held, and may ask again.
func ExampleBudgets_Bound() {
	ctx := context.Background()
	engine := memory.New(memory.Config{})
	b := backend.Budgets{Destroy: 10 * time.Millisecond}.Bound(engine)
	box := backend.Ref{ID: "box", Instance: "i1"}
	if _, err := b.Create(ctx, backend.Spec{Ref: box}); err != nil {
		fmt.Println(err)
	}

	mend := engine.Engine().Inject(memory.Fault{Call: "destroy", Hang: true})
	out, err := b.Destroy(ctx, box)
	fmt.Println(out, errors.Is(err, backend.ErrBudget))
	fmt.Println(err)

	mend()
	out, err = b.Destroy(ctx, box)
	fmt.Println(out, err)
	// Output:
	// unknown true
	// backend: budget exceeded: destroy "box" got no answer within 10ms, its effect is unknown
	// stopped <nil>
}

// What is refused is refused before anything is made, with the field, the number and the limit.
func ExampleSpec_Check() {
	spec := backend.Spec{Ref: backend.Ref{ID: "box", Instance: "i1"}, Env: map[string]string{"A=B": "secret"}}
	fmt.Println(spec.Check())
	fmt.Println(backend.CheckID("../etc"))
	// Output:
	// backend: invalid: env name "A=B" has '=' or NUL in it
	// backend: invalid: id "../etc": byte 0 is not one of a-z, 0-9 or an inner '-'
}
