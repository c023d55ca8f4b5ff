package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	xsync "golang.org/x/sync/singleflight"

	"github.com/keepwell-go/keepwell/registry/fresh"
)

// printLists shows what ratios of time do not: how many lists a crowd costs, and whether what it was told was still true.
func printLists(w io.Writer) {
	ourCalls, ourLists, ourStale := crowd(coalesced())
	theirCalls, theirLists, theirStale := crowd(joined())
	ours, theirs := float64(ourLists)/float64(ourCalls), float64(theirLists)/float64(theirCalls)
	fmt.Fprintln(w, "| crowd | ours | x/sync Do | goal |\n|---|---|---|---|")
	fmt.Fprintf(w, "| 64 callers, 1 ms list: lists a call | %.4f | %.4f | ratio %.2f, ≤ 2.1 |\n", ours, theirs, ours/theirs)
	fmt.Fprintf(w, "| the same: answers older than the question | %d of %d | %d of %d | 0 |\n", ourStale, ourCalls, theirStale, theirCalls)
	lists, slowest := burst(10_000, 10*time.Millisecond)
	fmt.Fprintf(w, "| 10,000 misses at once, 10 ms list: lists | %d | | ≤ 2 |\n", lists)
	fmt.Fprintf(w, "| the same: the last answered, in list times | %.2f | | ≤ 2.2 |\n", slowest)
}

// source is a list of one number that only grows: a caller who knows the number of its own question can tell a stale answer.
type source struct {
	now   atomic.Int64
	lists atomic.Int64
}

func (s *source) list(took time.Duration) int64 {
	s.lists.Add(1)
	seen := s.now.Load()
	time.Sleep(took)
	return seen
}

func coalesced() (*source, func() (int64, error)) {
	s := new(source)
	c := fresh.New(func(context.Context, []string) (int64, error) { return s.list(time.Millisecond), nil }, fresh.Config{})
	return s, func() (int64, error) { return c.Do(context.Background(), "k") }
}

func joined() (*source, func() (int64, error)) {
	s := new(source)
	var g xsync.Group
	return s, func() (int64, error) {
		v, err, _ := g.Do("k", func() (any, error) { return s.list(time.Millisecond), nil })
		n, _ := v.(int64)
		return n, err
	}
}

// crowd lets 64 callers write, then ask, for a second, and counts answers older than the caller's own write.
func crowd(s *source, ask func() (int64, error)) (calls, lists, stale int64) {
	var asked, old atomic.Int64
	var wg sync.WaitGroup
	end := time.Now().Add(time.Second)
	for range 64 {
		wg.Go(func() {
			for time.Now().Before(end) {
				wrote := s.now.Add(1)
				got, err := ask()
				if err != nil {
					panic(err)
				}
				asked.Add(1)
				if got < wrote {
					old.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return asked.Load(), s.lists.Load(), old.Load()
}

// burst lets n callers miss at once while a list runs, and returns the lists made and the longest wait in list times.
func burst(n int, took time.Duration) (lists int64, slowest float64) {
	var s source
	c := fresh.New(func(context.Context, []string) (int64, error) { return s.list(took), nil }, fresh.Config{})
	defer c.Close()
	var longest atomic.Int64
	var wg sync.WaitGroup
	gate := make(chan struct{})
	for range n {
		wg.Go(func() {
			<-gate
			start := time.Now()
			if _, err := c.Do(context.Background(), "k"); err != nil {
				panic(err)
			}
			for d := int64(time.Since(start)); ; {
				if old := longest.Load(); old >= d || longest.CompareAndSwap(old, d) {
					return
				}
			}
		})
	}
	close(gate)
	wg.Wait()
	return s.lists.Load(), float64(longest.Load()) / float64(took)
}
