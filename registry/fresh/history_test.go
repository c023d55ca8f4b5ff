package fresh_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"golang.org/x/sync/singleflight"

	"github.com/keepwell-go/keepwell/registry/fresh"
)

// access is an operation on a register: what the backend has, written by its owner and read through a shared list.
type access struct {
	write bool
	value int64
}

// register is the whole specification of freshness: a read returns what was written last.
var register = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		if in := input.(access); in.write {
			return true, in.value
		}
		return output.(int64) == state.(int64), state
	},
}

// record lets clients write to a backend and read it through a shared list, and returns what they saw.
func record(t *testing.T, pause func(*rand.Rand), share through) []porcupine.Operation {
	const clients, accesses = 6, 60
	var backend, written, order atomic.Int64
	var lists atomic.Uint64
	read := share(t, func() int64 {
		rng := rand.New(rand.NewPCG(lists.Add(1), 0))
		pause(rng)
		defer pause(rng)
		return backend.Load()
	})
	var mu sync.Mutex // guards history and the order of writes
	var history []porcupine.Operation
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(client), 1))
			for range accesses {
				pause(rng)
				op := porcupine.Operation{ClientId: client, Input: access{}, Call: order.Add(1)}
				if rng.IntN(3) == 0 {
					op.Input = access{write: true, value: written.Add(1)}
					backend.Store(op.Input.(access).value)
				} else {
					op.Output = read(client)
				}
				op.Return = order.Add(1)
				mu.Lock()
				history = append(history, op)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return history
}

func sleep(rng *rand.Rand) { time.Sleep(time.Duration(rng.IntN(1000)) * time.Microsecond) }

func yield(rng *rand.Rand) {
	for range rng.IntN(20) {
		runtime.Gosched()
	}
}

// through shares list among clients.
type through func(t *testing.T, list func() int64) (read func(client int) int64)

func throughFresh(t *testing.T, list func() int64) func(int) int64 {
	c := fresh.New(func(context.Context, []int) (int64, error) { return list(), nil }, fresh.Config{})
	t.Cleanup(c.Close)
	return func(client int) int64 {
		v, err := c.Do(context.Background(), client)
		if err != nil {
			t.Error(err)
		}
		return v
	}
}

func throughSingleflight(_ *testing.T, list func() int64) func(int) int64 {
	var g singleflight.Group
	return func(int) int64 {
		v, _, _ := g.Do("list", func() (any, error) { return list(), nil })
		return v.(int64)
	}
}

func TestReadsThroughACoalescerAreLinearizable(t *testing.T) { // R6
	t.Run("virtual", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			if !porcupine.CheckOperations(register, record(t, sleep, throughFresh)) {
				t.Error("a caller was answered with what was true before it asked")
			}
		})
	})
	t.Run("real", func(t *testing.T) {
		if !porcupine.CheckOperations(register, record(t, yield, throughFresh)) {
			t.Error("a caller was answered with what was true before it asked")
		}
	})
}

// TestReadsThroughSingleflightAreNot is why this package exists: the same clients, with the usual way to share a list.
func TestReadsThroughSingleflightAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if porcupine.CheckOperations(register, record(t, sleep, throughSingleflight)) {
			t.Error("singleflight kept the promise; this package could go")
		}
	})
}

// TestSingleflightAnswersWithWhatWasTrueBefore shows the fault step by step, and that the same steps are right here.
func TestSingleflightAnswersWithWhatWasTrueBefore(t *testing.T) { // R6
	for name, tt := range map[string]struct {
		share through
		want  int64
	}{
		"singleflight": {throughSingleflight, 0},
		"fresh":        {throughFresh, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var backend atomic.Int64
				read := tt.share(t, func() int64 {
					seen := backend.Load()
					time.Sleep(time.Second)
					return seen
				})
				go read(1)
				synctest.Wait() // the list has been made and is on its way
				backend.Store(1)
				if got := read(2); got != tt.want {
					t.Errorf("read %d after 1 was written, want %d", got, tt.want)
				}
			})
		})
	}
}
