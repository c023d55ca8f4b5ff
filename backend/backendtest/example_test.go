package backendtest_test

import (
	"context"
	"fmt"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/backendtest"
	"github.com/keepwell-go/keepwell/backend/memory"
)

// hopeful is a backend that takes every error for "nothing there".
type hopeful struct{ *memory.Backend }

func (h hopeful) List(ctx context.Context, ids ...string) (backend.Snapshot, error) {
	snap, err := h.Backend.List(ctx, ids...)
	if err != nil {
		return backend.Snapshot{Complete: true}, nil
	}
	return snap, nil
}

// A test calls Run. A program that wants the verdicts, such as a dashboard of many backends, goes through the Cases.
func ExampleCase_Check() {
	engine := memory.NewEngine(memory.Config{})
	h := backendtest.Harness{
		New: func(owner string) (backend.Backend, error) { return hopeful{engine.Open(owner)}, nil },
		Break: func(context.Context) (mend func() error, err error) {
			lift := engine.Break()
			return func() error { lift(); return nil }, nil
		},
		Cannot: map[string]string{"Restart": "it has no state outside of this process"},
	}
	for _, c := range backendtest.Cases() {
		switch c.Name {
		case "SecondDestroyIsGone", "ListFailsWhileTheEngineIsDown", "PinSurvivesARestart":
			if why := c.Cannot(h); why != "" {
				fmt.Printf("%s: skipped, %s\n", c.Name, why)
				continue
			}
			err := c.Check(context.Background(), h)
			fmt.Printf("%s: %v\n", c.Name, err)
			if err != nil {
				fmt.Printf("  %s: %s\n", c.Rule, c.Why)
			}
		}
	}
	// Output:
	// SecondDestroyIsGone: <nil>
	// ListFailsWhileTheEngineIsDown: list of a broken engine: 0 sandboxes, error <nil>; want one that is "backend: unavailable"
	//   R13, R16: an empty list by accident drops every sandbox there is
	// PinSurvivesARestart: skipped, needs Restart: it has no state outside of this process
}
