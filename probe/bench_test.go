package probe_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/probe"
)

// bare is the least that a cached answer can cost: one atomic load and one look at the clock.
type bare struct {
	last atomic.Pointer[probe.Result[int]]
}

func (b *bare) get() (probe.Result[int], bool) {
	r := b.last.Load()
	return *r, time.Since(r.At) < time.Hour
}

func BenchmarkGetKept(b *testing.B) {
	p := probe.New(ok, probe.Config{TTL: time.Hour})
	defer p.Close()
	ctx := context.Background()
	if _, err := p.Get(ctx); err != nil {
		b.Fatal(err)
	}
	least := &bare{}
	least.last.Store(new(p.Peek()))
	var ours, bare time.Duration
	b.Run("probe", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = p.Get(ctx)
		}
		ours = b.Elapsed() / time.Duration(b.N)
	})
	b.Run("bare", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = least.get()
		}
		bare = b.Elapsed() / time.Duration(b.N)
		if ours > 0 {
			b.ReportMetric(float64(ours)/float64(max(bare, 1)), "probe/bare")
		}
	})
	b.Run("probe_parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_, _ = p.Get(ctx)
			}
		})
	})
}

func BenchmarkGetMeasured(b *testing.B) {
	p := probe.New(ok, probe.Config{TTL: -1})
	defer p.Close()
	b.ReportAllocs()
	for b.Loop() {
		_, _ = p.Get(context.Background())
	}
}
