package backend_test

import (
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend"
)

// What a budget costs: a goroutine, a context and a timer, beside the bare call of the same run.
func BenchmarkBoundedCall(b *testing.B) {
	bare := engine{gone}
	bounded := backend.Budgets{}.Bound(bare)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = bounded.Stop(b.Context(), ref)
	}
	perCall := float64(b.Elapsed()) / float64(b.N)
	start := time.Now()
	for range b.N {
		_, _ = bare.Stop(b.Context(), ref)
	}
	b.ReportMetric(perCall/(float64(time.Since(start))/float64(b.N)), "x/bare")
}

func BenchmarkCheckID(b *testing.B) {
	const id = "a-sandbox-of-some-user-0123456789"
	b.ReportAllocs()
	for b.Loop() {
		if err := backend.CheckID(id); err != nil {
			b.Fatal(err)
		}
	}
}
