package main

import (
	"context"
	"testing"

	"github.com/jackc/puddle/v2"
	"golang.org/x/sync/semaphore"

	"github.com/keepwell-go/keepwell/quota"
)

type claim struct{ tenant string }

func quotaRows() []row {
	return []row{
		{"quota reserve + release, two limits", "puddle Acquire + Release", reserveRelease, puddleAcquire, 2},
		{"quota reserve + release, two limits", "x/sync semaphore × 2", reserveRelease, twoSemaphores, 12},
	}
}

func reserveRelease(b *testing.B) {
	l := quota.New[string](quota.Config{},
		quota.Limit[claim]{Name: "host", Max: 256},
		quota.Limit[claim]{Name: "tenant", Max: 10, Key: func(c claim) string { return c.tenant }})
	b.ReportAllocs()
	for b.Loop() {
		t, err := l.Reserve("box", claim{"a"})
		if err != nil {
			b.Fatal(err)
		}
		t.Release()
	}
}

func puddleAcquire(b *testing.B) {
	p, err := puddle.NewPool(&puddle.Config[int]{
		Constructor: func(context.Context) (int, error) { return 1, nil },
		Destructor:  func(int) {},
		MaxSize:     256,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	b.ReportAllocs()
	for b.Loop() {
		r, err := p.Acquire(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		r.Release()
	}
}

func twoSemaphores(b *testing.B) {
	host, tenant := semaphore.NewWeighted(256), semaphore.NewWeighted(10)
	b.ReportAllocs()
	for b.Loop() {
		if !host.TryAcquire(1) || !tenant.TryAcquire(1) {
			b.Fatal("no room")
		}
		tenant.Release(1)
		host.Release(1)
	}
}
