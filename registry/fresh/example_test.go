package fresh_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/keepwell-go/keepwell/registry/fresh"
)

// Many callers share few runs, and each is told what was true after it asked.
func ExampleCoalescer() {
	running := []string{"web", "worker"}
	c := fresh.New(func(ctx context.Context, _ []string) ([]string, error) {
		return running, nil // ask the backend; ctx ends at the budget
	}, fresh.Config{})
	defer c.Close()

	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if names, err := c.Do(context.Background()); err != nil || len(names) != 2 {
				fmt.Println(names, err)
			}
		})
	}
	wg.Wait()
	names, err := c.Do(context.Background())
	fmt.Println(names, err)
	// Output: [web worker] <nil>
}

// A caller who comes while a run is in progress is not answered by it, since that run may have looked already: it gets
// the next one. Singleflight would have answered the second caller with "absent".
func ExampleCoalescer_Do_duringARun() {
	started, finish := make(chan bool, 2), make(chan bool, 2)
	var mu sync.Mutex // guards exists
	exists := false
	c := fresh.New(func(context.Context, []string) (string, error) {
		mu.Lock()
		seen := exists
		mu.Unlock()
		started <- true
		<-finish // the answer is on its way
		if seen {
			return "present", nil
		}
		return "absent", nil
	}, fresh.Config{})
	defer c.Close()

	first := make(chan string)
	go func() { answer, _ := c.Do(context.Background(), "web"); first <- answer }()
	<-started
	mu.Lock()
	exists = true
	mu.Unlock()
	second := make(chan string)
	go func() { answer, _ := c.Do(context.Background(), "web"); second <- answer }()

	finish <- true
	fmt.Println("asked before it was created:", <-first)
	finish <- true
	fmt.Println("asked after:", <-second)
	// Output:
	// asked before it was created: absent
	// asked after: present
}
