package quota_test

import (
	"errors"
	"fmt"

	"github.com/keepwell-go/keepwell/quota"
)

// Ten sandboxes on this host, two of each tenant, and 32 GiB of memory in all: three limits of one ledger. The token is
// held over the whole create, so that a burst cannot pass a limit, and Cancel gives the claim back however the create fails.
func Example() {
	type Claim struct {
		Tenant   string
		MemoryMB int64
	}
	ledger := quota.New[string](quota.Config{},
		quota.Limit[Claim]{Name: "host", Max: 10},
		quota.Limit[Claim]{Name: "tenant", Max: 2, Key: func(c Claim) string { return c.Tenant }},
		quota.Limit[Claim]{Name: "memory_mb", Max: 32 << 10, Cost: func(c Claim) int64 { return c.MemoryMB }},
	)
	create := func(id string, c Claim, engine func() error) error {
		token, err := ledger.Reserve(id, c)
		if err != nil {
			return err
		}
		defer token.Cancel() // does nothing once the claim is live
		if err := engine(); err != nil {
			return err
		}
		token.Live()
		return nil
	}

	works := func() error { return nil }
	fails := func() error { return errors.New("engine: no such image") }
	fmt.Println(create("a", Claim{"acme", 512}, works))
	fmt.Println(create("b", Claim{"acme", 512}, fails))
	fmt.Println(create("c", Claim{"acme", 512}, works))
	err := create("d", Claim{"acme", 512}, works)
	fmt.Println(err)

	var full *quota.ExceededError
	if errors.As(err, &full) {
		fmt.Println("status 429, limit", full.Limit)
	}
	// Output:
	// <nil>
	// engine: no such image
	// <nil>
	// quota: limit "tenant" of "acme" exceeded: 2 used of at most 2, 1 wanted
	// status 429, limit tenant
}

// A sandbox went away on its own, and its claim is freed because a list does not show it. The list is slow and "new" is created
// while it runs: that it does not show "new" means nothing.
func ExampleLedger_Reconcile() {
	ledger := quota.New[string](quota.Config{}, quota.Limit[string]{Name: "host", Max: 3})
	ledger.Adopt("kept", "acme")
	ledger.Adopt("vanished", "acme")

	mark := ledger.Mark() // before the list begins
	listed := map[string]bool{"kept": true}
	ledger.Adopt("new", "acme") // after it began

	freed := ledger.Reconcile(quota.Snapshot[string]{
		Since: mark, Complete: true,
		Has: func(id string) bool { return listed[id] },
	})
	fmt.Println("freed:", freed)

	teardown, _ := ledger.Get("kept")
	teardown.Stopping()
	for h := range ledger.Holders() {
		fmt.Println(h.Key, "is", h.State)
	}
	teardown.Cancel() // the engine did not answer: it may still be there, and goes on counting
	fmt.Println("used:", ledger.Stats().Used["host"][""])
	// Output:
	// freed: [vanished]
	// kept is stopping
	// new is live
	// used: 2
}
