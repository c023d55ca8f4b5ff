package registry_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/keepwell-go/keepwell/registry"
)

const sandboxes = 1000

func names() []string {
	all := make([]string, sandboxes)
	for i := range all {
		all[i] = fmt.Sprintf("sandbox-%d", i)
	}
	return all
}

// filled returns a registry, and a sync.Map with the same entries for comparison.
func filled(b *testing.B) (*reg, *sync.Map) {
	r := registry.New((&backend{}).list, config{})
	b.Cleanup(r.Close)
	var m sync.Map
	for i, k := range names() {
		h, err := r.Hold(k)
		if err != nil {
			b.Fatal(err)
		}
		h.Fill(i)
		m.Store(k, &entry{Key: k, Value: i})
	}
	return r, &m
}

func BenchmarkHit(b *testing.B) {
	r, m := filled(b)
	keys := names()
	b.Run("registry", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			if _, ok := r.Lookup(keys[i%sandboxes]); !ok {
				b.Fatal("a miss")
			}
			i++
		}
	})
	b.Run("sync.Map", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			if _, ok := m.Load(keys[i%sandboxes]); !ok {
				b.Fatal("a miss")
			}
			i++
		}
	})
}

// BenchmarkHitParallel has as many readers as processors, and one writer who holds and fills a key all the time.
func BenchmarkHitParallel(b *testing.B) {
	r, _ := filled(b)
	keys := names()
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if h, err := r.Take("sandbox-0"); err == nil {
					h.Fill(1)
				}
			}
		}
	})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 1; pb.Next(); i++ {
			if _, ok := r.Lookup(keys[1+i%(sandboxes-1)]); !ok {
				b.Error("a miss")
			}
		}
	})
	close(stop)
	writer.Wait()
}

func BenchmarkMiss(b *testing.B) {
	nothing := func(context.Context, []string) (snapshot, error) { return snapshot{Complete: true}, nil }
	b.Run("registry", func(b *testing.B) {
		r := registry.New(nothing, config{})
		defer r.Close()
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.Resolve(b.Context(), "k"); err == nil {
				b.Fatal("found")
			}
		}
	})
	b.Run("singleflight.DoChan", func(b *testing.B) {
		var g singleflight.Group
		b.ReportAllocs()
		for b.Loop() {
			if res := <-g.DoChan("k", func() (any, error) { return nothing(b.Context(), nil) }); res.Err != nil {
				b.Fatal(res.Err)
			}
		}
	})
}

// BenchmarkTenThousandMisses reports the lists that a burst of 10,000 misses costs, and when the last was answered.
func BenchmarkTenThousandMisses(b *testing.B) {
	const callers, took = 10_000, 10 * time.Millisecond
	var lists atomic.Int64
	r := registry.New(func(context.Context, []string) (snapshot, error) {
		lists.Add(1)
		elapse(took)
		return snapshot{Complete: true}, nil
	}, config{})
	defer r.Close()
	for b.Loop() {
		b.StopTimer()
		var all, ready sync.WaitGroup
		ready.Add(callers)
		gate := make(chan struct{})
		for range callers {
			all.Go(func() {
				ready.Done()
				<-gate
				if _, err := r.Resolve(b.Context(), "k"); err == nil {
					b.Error("found")
				}
			})
		}
		ready.Wait()
		b.StartTimer()
		close(gate)
		all.Wait()
	}
	b.ReportMetric(float64(lists.Load())/float64(b.N), "lists/burst")
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(took), "list-times/burst")
}
