package sweep_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/sweep"
)

// BenchmarkSkip is what a pass that meets a running one costs; x-trylock is how much longer it takes than the TryLock of a
// mutex that is locked, which is the least that a guard can cost and neither counts nor tells.
func BenchmarkSkip(b *testing.B) {
	end := make(chan struct{})
	begun := make(chan struct{})
	l := sweep.New(func(context.Context) error { close(begun); <-end; return nil }, sweep.Config{})
	ctx := context.Background()
	go func() { _ = l.TryRun(ctx) }()
	<-begun
	b.ReportAllocs()
	for b.Loop() {
		if l.TryRun(ctx) != sweep.ErrRunning {
			b.Fatal("not refused")
		}
	}
	skip := float64(b.Elapsed()) / float64(b.N)
	close(end)
	l.Close()

	tryLock := lockedMutex()
	start := time.Now()
	for range b.N {
		tryLock()
	}
	b.ReportMetric(skip/(float64(time.Since(start))/float64(b.N)), "x-trylock")
}

// BenchmarkTryLock is the peer.
func BenchmarkTryLock(b *testing.B) {
	tryLock := lockedMutex()
	b.ReportAllocs()
	for b.Loop() {
		tryLock()
	}
}

//go:noinline
func lockedMutex() func() {
	var mu sync.Mutex
	mu.Lock()
	return func() {
		if mu.TryLock() {
			mu.Unlock()
		}
	}
}

// BenchmarkPass is what the loop adds to a pass: its goroutine, its context, its guard.
func BenchmarkPass(b *testing.B) {
	l := sweep.New(func(context.Context) error { return nil }, sweep.Config{})
	b.ReportAllocs()
	for b.Loop() {
		if err := l.TryRun(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	l.Close()
}

func BenchmarkJudge(b *testing.B) {
	f := sweep.Facts{Reachable: true, Age: time.Minute, TTL: time.Hour, Idle: time.Second, IdleTimeout: time.Minute}
	b.ReportAllocs()
	for b.Loop() {
		if v, _ := sweep.Judge(f); v != sweep.Keep {
			b.Fatal(v)
		}
	}
}

func BenchmarkActivity(b *testing.B) {
	var a sweep.Activity
	b.ReportAllocs()
	for b.Loop() {
		a.Begin()(true)
	}
}

func BenchmarkPlanOfThousandKept(b *testing.B) {
	p := of(1000, sweep.Keep, 0, 0).plan()
	ids := slices.Collect(p.Subjects)
	p.Subjects = slices.Values(ids)
	p.Judge = func(context.Context, int) (sweep.Verdict, string) { return sweep.Keep, "" }
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Run(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
