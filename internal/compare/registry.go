package main

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/maypok86/otter/v2"
	xsync "golang.org/x/sync/singleflight"
	"resenje.org/singleflight"

	"github.com/keepwell-go/keepwell/registry"
	"github.com/keepwell-go/keepwell/registry/fresh"
)

const known = 1000 // entries of the caches whose hits are measured

func registryRows() []row {
	ours, smap, cache := filledRegistry(), filledMap(), filledOtter()
	keys := make([]string, known)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	hit := each(keys, func(k string) bool { _, ok := ours.Lookup(k); return ok })
	mapHit := each(keys, func(k string) bool { _, ok := smap.Load(k); return ok })
	otterHit := each(keys, func(k string) bool { _, ok := cache.GetIfPresent(k); return ok })
	miss := freshMiss()
	return []row{
		{"registry hit", "sync.Map Load", hit, mapHit, 1.2},
		{"registry hit", "otter GetIfPresent", hit, otterHit, 0.8},
		{"registry hit, all cores", "sync.Map Load", parallel(keys, hitOf(ours)), parallel(keys, func(k string) bool { _, ok := smap.Load(k); return ok }), 1.2},
		{"registry hit, all cores", "otter GetIfPresent", parallel(keys, hitOf(ours)), parallel(keys, func(k string) bool { _, ok := cache.GetIfPresent(k); return ok }), 0.8},
		{"miss, uncontended", "resenje Do", miss, resenjeMiss(), 1.2},
		{"miss, uncontended", "x/sync DoChan", miss, doChanMiss(), 1},
		{"miss, uncontended, by work that minds its context", "resenje Do", mindfulMiss(), mindfulResenjeMiss(), 1.2},
	}
}

func hitOf(r *registry.Registry[string, int]) func(string) bool {
	return func(k string) bool { _, ok := r.Lookup(k); return ok }
}

func each(keys []string, get func(string) bool) func(*testing.B) {
	return func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if !get(keys[i%known]) {
				b.Fatal("a key is missing")
			}
		}
	}
}

func parallel(keys []string, get func(string) bool) func(*testing.B) {
	return func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				if !get(keys[i%known]) {
					b.Error("a key is missing")
					return
				}
			}
		})
	}
}

func filledRegistry() *registry.Registry[string, int] {
	r := registry.New(func(context.Context, []string) (registry.Snapshot[string, int], error) {
		items := make(map[string]int, known)
		for i := range known {
			items[strconv.Itoa(i)] = i
		}
		return registry.Snapshot[string, int]{Items: items, Complete: true}, nil
	}, registry.Config[string, int]{})
	if _, err := r.Sync(context.Background()); err != nil {
		panic(err)
	}
	return r
}

func filledMap() *sync.Map {
	var m sync.Map
	for i := range known {
		m.Store(strconv.Itoa(i), i)
	}
	return &m
}

func filledOtter() *otter.Cache[string, int] {
	c := otter.Must(&otter.Options[string, int]{MaximumSize: 2 * known})
	for i := range known {
		c.Set(strconv.Itoa(i), i)
	}
	return c
}

func freshMiss() func(*testing.B) {
	return func(b *testing.B) {
		c := fresh.New(func(context.Context, []string) (int, error) { return 1, nil }, fresh.Config{})
		defer c.Close()
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Do(context.Background(), "k"); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func resenjeMiss() func(*testing.B) {
	return func(b *testing.B) {
		var g singleflight.Group[string, int]
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := g.Do(context.Background(), "k", func(context.Context) (int, error) { return 1, nil }); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// mindful is work that can be interrupted, as a list over the network is.
func mindful(ctx context.Context) (int, error) {
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	default:
		return 1, nil
	}
}

func mindfulMiss() func(*testing.B) {
	return func(b *testing.B) {
		c := fresh.New(func(ctx context.Context, _ []string) (int, error) { return mindful(ctx) }, fresh.Config{})
		defer c.Close()
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Do(context.Background(), "k"); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func mindfulResenjeMiss() func(*testing.B) {
	return func(b *testing.B) {
		var g singleflight.Group[string, int]
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := g.Do(context.Background(), "k", mindful); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func doChanMiss() func(*testing.B) {
	return func(b *testing.B) {
		var g xsync.Group
		b.ReportAllocs()
		for b.Loop() {
			if r := <-g.DoChan("k", func() (any, error) { return 1, nil }); r.Err != nil {
				b.Fatal(r.Err)
			}
		}
	}
}
