package probe_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/keepwell-go/keepwell/probe"
)

// A dependency is measured once, however many ask.
func ExampleProbe() {
	checks := 0
	db := probe.New(func(ctx context.Context) (string, error) {
		checks++
		return "postgres 17", nil // in real life, db.PingContext(ctx)
	}, probe.Config{Budget: 2 * time.Second, TTL: time.Minute})
	defer db.Close()

	for range 1000 {
		if _, err := db.Get(context.Background()); err != nil {
			fmt.Println(err)
		}
	}
	r := db.Peek()
	fmt.Println(r.State, r.Value, "after", checks, "check")
	// Output: up postgres 17 after 1 check
}

// One failure is visible at once, but changes the state only when it is the last of several.
func ExampleGroup() {
	queue := probe.New(func(ctx context.Context) (int, error) {
		return 0, errors.New("connection refused")
	}, probe.Config{FailureTTL: -1, Fall: 2})
	defer queue.Close()
	var g probe.Group
	g.Add("queue", true, queue)

	for range 2 {
		w := httptest.NewRecorder()
		g.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/health", nil))
		fmt.Println(w.Code, http.StatusText(w.Code), queue.Peek().State, queue.Peek().Err)
	}
	// Output:
	// 200 OK unknown connection refused
	// 503 Service Unavailable down connection refused
}
