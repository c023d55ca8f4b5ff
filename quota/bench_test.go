package quota_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/keepwell-go/keepwell/quota"
)

func keyed() *ledger {
	memory := quota.Limit[claim]{Name: "memory", Max: 1 << 30, Key: tenantOf, Cost: memOf}
	return newLedger(tenant(2), memory)
}

// BenchmarkReserveRelease is one create and destroy of a ledger with two keyed limits; x-semaphores is how much longer it
// takes than the same round through two semaphores of x/sync, which know neither keys nor who holds what.
func BenchmarkReserveRelease(b *testing.B) {
	l := keyed()
	b.ReportAllocs()
	for b.Loop() {
		t, err := l.Reserve("x", claim{"A", 512})
		if err != nil {
			b.Fatal(err)
		}
		t.Release()
	}
	mine := float64(b.Elapsed()) / float64(b.N)
	b.ReportMetric(mine/perRound(b.N, semaphores()), "x-semaphores")
}

// BenchmarkReserveReleaseAmongOthers is the same with 256 claims counted already, some of the same tenant.
func BenchmarkReserveReleaseAmongOthers(b *testing.B) {
	l := newLedger(host(1000), tenant(300))
	for i := range 256 {
		l.Adopt(fmt.Sprint(i), claim{tenant: string(rune('A' + i%8))})
	}
	b.ReportAllocs()
	for b.Loop() {
		t, err := l.Reserve("x", claim{"A", 512})
		if err != nil {
			b.Fatal(err)
		}
		t.Release()
	}
}

func BenchmarkReserveReleaseParallel(b *testing.B) {
	l := newLedger(host(1000), tenant(300))
	b.ReportAllocs()
	var callers atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		k := fmt.Sprint(callers.Add(1))
		for pb.Next() {
			t, err := l.Reserve(k, claim{"A", 512})
			if err != nil {
				b.Error(err)
			}
			t.Release()
		}
	})
}

// BenchmarkTwoSemaphores is the peer.
func BenchmarkTwoSemaphores(b *testing.B) {
	round := semaphores()
	b.ReportAllocs()
	for b.Loop() {
		round()
	}
}

func semaphores() func() {
	one, two := semaphore.NewWeighted(2), semaphore.NewWeighted(1<<30)
	return func() {
		if one.TryAcquire(1) && two.TryAcquire(512) {
			two.Release(512)
			one.Release(1)
		}
	}
}

// perRound returns how many nanoseconds one of n rounds takes.
func perRound(n int, round func()) float64 {
	start := time.Now()
	for range n {
		round()
	}
	return float64(time.Since(start)) / float64(n)
}
