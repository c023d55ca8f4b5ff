package registry_test

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/keepwell-go/keepwell/registry"
)

// act is one operation on a key; value is what Fill registers.
type act struct {
	key   string
	verb  string
	value int
}

// outcome is what an act returned: ok, and the value that Lookup or Take saw, or what refused it.
type outcome struct {
	ok      bool
	value   int
	refused error
}

// slot is the whole specification of one key: what is registered, and what was taken out of sight by the one who holds it.
type slot struct {
	value, taken int
	held         bool
}

var slots = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range history {
			k := op.Input.(act).key
			byKey[k] = append(byKey[k], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return slot{} },
	Step: func(state, input, output any) (bool, any) {
		return step(state.(slot), input.(act), output.(outcome))
	},
}

func step(s slot, in act, out outcome) (bool, any) {
	switch in.verb {
	case "lookup":
		return out.ok == (s.value != 0) && out.value == s.value, s
	case "hold":
		switch {
		case s.held:
			return out.refused == errHeld, s
		case s.value != 0:
			return out.refused == registry.ErrExists, s
		}
		return out.ok, slot{held: true}
	case "take":
		switch {
		case s.held:
			return out.refused == errHeld, s
		case s.value == 0:
			return out.refused == registry.ErrNotFound, s
		}
		return out.ok && out.value == s.value, slot{held: true, taken: s.value}
	case "fill":
		return out.ok && s.held, slot{value: in.value}
	case "release":
		return out.ok && s.held, slot{}
	default: // cancel
		return out.ok && s.held, slot{value: s.taken}
	}
}

var errHeld = errors.New("held")

func refusal(err error) outcome {
	var h *registry.HeldError
	switch {
	case errors.As(err, &h):
		return outcome{refused: errHeld}
	case errors.Is(err, registry.ErrExists):
		return outcome{refused: registry.ErrExists}
	case errors.Is(err, registry.ErrNotFound):
		return outcome{refused: registry.ErrNotFound}
	}
	return outcome{refused: err, ok: err == nil}
}

// recorder plays clients against a registry and keeps what they saw.
type recorder struct {
	r     *reg
	order atomic.Int64
	value atomic.Int64

	mu      sync.Mutex // guards history
	history []porcupine.Operation
}

func (rec *recorder) do(client int, in act, f func() outcome) outcome {
	call := rec.order.Add(1)
	out := f()
	op := porcupine.Operation{ClientId: client, Input: in, Output: out, Call: call, Return: rec.order.Add(1)}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.history = append(rec.history, op)
	return out
}

func (rec *recorder) play(client int) {
	rng := rand.New(rand.NewPCG(uint64(client), 2))
	for range 60 {
		k := []string{"a", "b"}[rng.IntN(2)]
		var h *hold
		switch rng.IntN(4) {
		case 0:
			rec.do(client, act{key: k, verb: "hold"}, func() (out outcome) {
				var err error
				h, err = rec.r.Hold(k)
				return refusal(err)
			})
		case 1:
			rec.do(client, act{key: k, verb: "take"}, func() (out outcome) {
				var err error
				if h, err = rec.r.Take(k); err != nil {
					return refusal(err)
				}
				return outcome{ok: true, value: h.Entry().Value}
			})
		default:
			rec.do(client, act{key: k, verb: "lookup"}, func() outcome {
				e, ok := rec.r.Lookup(k)
				return outcome{ok: ok, value: e.Value}
			})
		}
		runtime.Gosched()
		if h != nil {
			rec.end(client, k, h, rng)
		}
	}
}

func (rec *recorder) end(client int, k string, h *hold, rng *rand.Rand) {
	switch rng.IntN(4) {
	case 0:
		rec.do(client, act{key: k, verb: "release"}, func() outcome { return outcome{ok: h.Release()} })
	case 1:
		rec.do(client, act{key: k, verb: "cancel"}, func() outcome { return outcome{ok: h.Cancel()} })
	default:
		v := int(rec.value.Add(1))
		rec.do(client, act{key: k, verb: "fill", value: v}, func() outcome { return outcome{ok: h.Fill(v)} })
	}
}

func TestHoldsAreLinearizable(t *testing.T) {
	for range 5 {
		rec := &recorder{r: registry.New((&backend{}).list, config{Observe: func(event) { runtime.Gosched() }})}
		var wg sync.WaitGroup
		for client := range 5 {
			wg.Go(func() { rec.play(client) })
		}
		wg.Wait()
		rec.r.Close()
		if !porcupine.CheckOperations(slots, rec.history) {
			t.Fatal("no order of the operations explains what the clients saw")
		}
	}
}
