package database_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/refserver/binding"
)

func BenchmarkStore(b *testing.B) {
	stores := map[string]func() binding.Store{"memory": func() binding.Store { return binding.NewMemory() }}
	for kind, url := range kinds {
		stores[kind] = func() binding.Store { return open(b, url(b)) }
	}
	for kind, open := range stores {
		b.Run(kind, func(b *testing.B) { benchmark(b, open()) })
	}
}

func benchmark(b *testing.B, s binding.Store) {
	ctx, bound := context.Background(), []string{}
	for i := range 1000 {
		must(b, s.Bind(ctx, box, fmt.Sprint("p", i), fmt.Sprint("m", i)))
		bound = append(bound, fmt.Sprint("m", i))
	}
	next := 0
	for name, call := range map[string]func() error{
		"Bound":      func() error { _, err := s.Bound(ctx, box, "p500"); return err },
		"Public1000": func() error { _, err := s.Public(ctx, box, bound); return err },
		"BeginBindEnd": func() error {
			next++
			id := fmt.Sprint("new", next)
			if err := s.Begin(ctx, binding.Start{Ref: box, ID: id, At: epoch, Expires: epoch.Add(time.Hour)}); err != nil {
				return err
			}
			if err := s.Bind(ctx, box, id, "m-"+id); err != nil {
				return err
			}
			return s.End(ctx, box, id, epoch)
		},
		"Prune": func() error { _, err := s.Prune(ctx, epoch.Add(-time.Hour)); return err },
		"Refs":  func() error { _, err := s.Refs(ctx); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				must(b, call())
			}
		})
	}
}
