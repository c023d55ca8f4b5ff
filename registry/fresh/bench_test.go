package fresh_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/keepwell-go/keepwell/registry/fresh"
)

func list(context.Context, []string) (int, error) { return 1, nil }

func BenchmarkUncontended(b *testing.B) {
	b.Run("fresh", func(b *testing.B) {
		c := fresh.New(list, fresh.Config{})
		defer c.Close()
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Do(b.Context(), "k"); err != nil {
				b.Fatal(err)
			}
		}
	})
	// The nearest peer that lets a caller leave: a goroutine per call and a channel per caller.
	b.Run("singleflight.DoChan", func(b *testing.B) {
		var g singleflight.Group
		b.ReportAllocs()
		for b.Loop() {
			select {
			case r := <-g.DoChan("k", func() (any, error) { return list(b.Context(), nil) }):
				if r.Err != nil {
					b.Fatal(r.Err)
				}
			case <-b.Context().Done():
			}
		}
	})
}

// Benchmark64CallersOneMillisecond reports how many runs a call costs: fresh may need twice those of singleflight, which
// answers some callers with what was true before they asked.
func Benchmark64CallersOneMillisecond(b *testing.B) {
	var runs atomic.Int64
	slow := func(context.Context, []string) (int, error) {
		runs.Add(1)
		elapse(time.Millisecond)
		return 1, nil
	}
	measure := func(b *testing.B, call func() error) {
		runs.Store(0)
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := call(); err != nil {
					b.Error(err)
				}
			}
		})
		b.ReportMetric(float64(runs.Load())/float64(b.N), "runs/op")
	}
	b.Run("fresh", func(b *testing.B) {
		c := fresh.New(slow, fresh.Config{})
		defer c.Close()
		measure(b, func() error { _, err := c.Do(b.Context(), "k"); return err })
	})
	b.Run("singleflight.Do", func(b *testing.B) {
		var g singleflight.Group
		measure(b, func() error {
			_, err, _ := g.Do("k", func() (any, error) { return slow(b.Context(), nil) })
			return err
		})
	})
}

// BenchmarkTenThousandAtOnce reports the runs that a burst of 10,000 callers costs and when the last was answered.
func BenchmarkTenThousandAtOnce(b *testing.B) {
	const callers, took = 10_000, 10 * time.Millisecond
	var runs atomic.Int64
	c := fresh.New(func(context.Context, []string) (int, error) {
		runs.Add(1)
		elapse(took)
		return 1, nil
	}, fresh.Config{})
	defer c.Close()
	for b.Loop() {
		b.StopTimer()
		var wg, ready sync.WaitGroup
		ready.Add(callers)
		gate := make(chan struct{})
		for range callers {
			wg.Go(func() {
				ready.Done()
				<-gate
				if _, err := c.Do(b.Context(), "k"); err != nil {
					b.Error(err)
				}
			})
		}
		ready.Wait()
		b.StartTimer()
		close(gate)
		wg.Wait()
	}
	b.ReportMetric(float64(runs.Load())/float64(b.N), "runs/burst")
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(took), "list-times/burst")
}
