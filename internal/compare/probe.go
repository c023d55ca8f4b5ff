package main

import (
	"context"
	"testing"
	"time"

	"github.com/alexliesenfeld/health"
	hellofresh "github.com/hellofresh/health-go/v5"

	"github.com/keepwell-go/keepwell/probe"
)

func probeRows() []row {
	return []row{
		{"probe, cached answer", "alexliesenfeld/health Check", cachedProbe, cachedChecker, 0.05},
		{"probe, cached answer", "hellofresh/health-go Measure", cachedProbe, measured, 0.05},
	}
}

func cachedProbe(b *testing.B) {
	p := probe.New(func(context.Context) (int, error) { return 1, nil }, probe.Config{TTL: time.Hour})
	defer p.Close()
	b.ReportAllocs()
	for b.Loop() {
		if r, err := p.Get(context.Background()); err != nil || r.State != probe.Up {
			b.Fatal(r, err)
		}
	}
}

func cachedChecker(b *testing.B) {
	c := health.NewChecker(health.WithCacheDuration(time.Hour),
		health.WithCheck(health.Check{Name: "x", Check: func(context.Context) error { return nil }}))
	b.ReportAllocs()
	for b.Loop() {
		if r := c.Check(context.Background()); r.Status != health.StatusUp {
			b.Fatal(r)
		}
	}
}

func measured(b *testing.B) {
	h, err := hellofresh.New(hellofresh.WithChecks(hellofresh.Config{Name: "x", Check: func(context.Context) error { return nil }}))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if r := h.Measure(context.Background()); r.Status != hellofresh.StatusOK {
			b.Fatal(r)
		}
	}
}
