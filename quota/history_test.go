package quota_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/keepwell-go/keepwell/quota"
)

// call is one call of a history: of the ledger for key k, or of token tok.
type call struct {
	method string
	k      int
	tenant string
	tok    int // tokens are numbered as they are first seen; 0: none
}

// answer is what a call returned.
type answer struct {
	ok  bool
	tok int
	why string // of a refusal
}

// held is what a sequential ledger knows of one key, and ledgerState of all three.
type held struct {
	tok    int
	tenant string
	state  quota.State
}

type ledgerState [3]held

const hostMax, tenantMax = 2, 1

// why says why k is refused in s; "": it is admitted.
func (s ledgerState) why(k int, tenant string) string {
	if s[k].tok != 0 {
		return "duplicate " + s[k].state.String()
	}
	host, own := 0, 0
	for _, h := range s {
		if h.tok != 0 {
			host++
		}
		if h.tok != 0 && h.tenant == tenant {
			own++
		}
	}
	if host >= hostMax {
		return fmt.Sprint("host ", host)
	}
	if own >= tenantMax {
		return fmt.Sprint("tenant ", own)
	}
	return ""
}

// step says whether a sequential ledger in state s could answer c with a, and what state it is in then.
func step(s ledgerState, c call, a answer) (bool, ledgerState) {
	switch c.method {
	case "Reserve":
		if why := s.why(c.k, c.tenant); why != "" {
			return a == answer{why: why}, s
		}
		s[c.k] = held{a.tok, c.tenant, quota.InFlight}
		return a.ok, s
	case "Adopt":
		again := s[c.k].tok
		s[c.k] = held{a.tok, c.tenant, quota.Live}
		return again == 0 || again == a.tok, s
	}
	for k := range s {
		if s[k].tok == c.tok {
			return stepToken(s, k, c.method, a)
		}
	}
	return !a.ok, s // released
}

func stepToken(s ledgerState, k int, method string, a answer) (bool, ledgerState) {
	from := s[k].state
	switch {
	case method == "Release", method == "Cancel" && from == quota.InFlight:
		s[k] = held{}
	case method == "Stopping" && from == quota.Live:
		s[k].state = quota.Stopping
	case method != "Stopping" && from != quota.Live:
		s[k].state = quota.Live
	default:
		return !a.ok, s
	}
	return a.ok, s
}

// client makes calls at random and records them.
type client struct {
	id     int
	rng    *rand.Rand
	ledger *quota.Ledger[int, claim]
	names  *sync.Map // of tokens, to their numbers
	next   *atomic.Int64
	mine   []quota.Token[int, claim]
	calls  []porcupine.Operation
	start  time.Time
}

func (c *client) number(t quota.Token[int, claim]) int {
	if t == (quota.Token[int, claim]{}) {
		return 0
	}
	n, _ := c.names.LoadOrStore(t, int(c.next.Add(1)))
	return n.(int)
}

func (c *client) run(calls int) {
	for range calls {
		in := call{k: c.rng.IntN(3), tenant: string(rune('A' + c.rng.IntN(2)))}
		var tok quota.Token[int, claim]
		if n := len(c.mine); n > 0 && c.rng.IntN(3) > 0 {
			tok = c.mine[n-1-c.rng.IntN(min(n, 3))]
			in = call{method: []string{"Live", "Stopping", "Cancel", "Release", "Release"}[c.rng.IntN(5)], tok: c.number(tok)}
		} else {
			in.method = []string{"Reserve", "Reserve", "Adopt"}[c.rng.IntN(3)]
		}
		began := int64(time.Since(c.start))
		out := c.call(in, tok)
		c.calls = append(c.calls, porcupine.Operation{
			ClientId: c.id, Input: in, Call: began, Output: out, Return: int64(time.Since(c.start)),
		})
	}
}

func (c *client) call(in call, tok quota.Token[int, claim]) (a answer) {
	switch in.method {
	case "Live":
		return answer{ok: tok.Live()}
	case "Stopping":
		return answer{ok: tok.Stopping()}
	case "Cancel":
		return answer{ok: tok.Cancel()}
	case "Release":
		return answer{ok: tok.Release()}
	}
	err := error(nil)
	if in.method == "Adopt" {
		tok = c.ledger.Adopt(in.k, claim{tenant: in.tenant})
	} else {
		tok, err = c.ledger.Reserve(in.k, claim{tenant: in.tenant})
	}
	if err == nil {
		c.mine = append(c.mine, tok)
	}
	return answer{ok: err == nil, tok: c.number(tok), why: refusal(err)}
}

func refusal(err error) string {
	var dup *quota.DuplicateError
	var full *quota.ExceededError
	switch {
	case errors.As(err, &dup):
		return "duplicate " + dup.State.String()
	case errors.As(err, &full):
		return fmt.Sprint(full.Limit, " ", full.Used)
	}
	return ""
}

// What concurrent callers see of the ledger is what they could have seen had they called one after the other. // R18, R19, R20, R22
func TestConcurrentHistoriesAreLinearizable(t *testing.T) {
	sequential := porcupine.Model{
		Init: func() any { return ledgerState{} },
		Step: func(s, in, out any) (bool, any) {
			could, then := step(s.(ledgerState), in.(call), out.(answer))
			return could, then
		},
		DescribeOperation: func(in, out any) string {
			return fmt.Sprintf("%+v = %+v", in, out)
		},
	}
	for seed := range uint64(60) {
		l := quota.New[int](quota.Config{}, host(hostMax), tenant(tenantMax))
		start := time.Now()
		var names sync.Map
		var next atomic.Int64
		var wg sync.WaitGroup
		clients := make([]*client, 4)
		for i := range clients {
			c := &client{id: i, rng: rand.New(rand.NewPCG(seed, uint64(i))), ledger: l, names: &names, next: &next, start: start}
			clients[i] = c
			wg.Go(func() { runtime.Gosched(); c.run(25) })
		}
		wg.Wait()
		var history []porcupine.Operation
		for _, c := range clients {
			history = append(history, c.calls...)
		}
		if got := porcupine.CheckOperationsTimeout(sequential, history, 10*time.Second); got != porcupine.Ok {
			t.Fatalf("seed %d: the history of %d calls is not linearizable: %v", seed, len(history), got)
		}
	}
}

// At the cap, creates and destroys hand slots over without a gap and without counting twice: as many workers as there are
// slots never meet a refusal, and together with a crowd that wants in they are never more than the slots. // R21, R22
func TestAtTheCapThereIsNeverOneTooManyNorARefusalWithAFreeSlot(t *testing.T) {
	const slots, rounds = 4, 500
	for name, crowd := range map[string]int{"as many workers as slots": 0, "and a crowd": 8} {
		t.Run(name, func(t *testing.T) {
			l := quota.New[string](quota.Config{}, host(slots), tenant(slots))
			var live, refused atomic.Int64
			var wg sync.WaitGroup
			for i := range slots + crowd {
				wg.Go(func() {
					for r := range rounds {
						tok, err := l.Reserve(fmt.Sprint(i), claim{tenant: "A"})
						if err != nil {
							refused.Add(1)
							continue
						}
						if n := live.Add(1); n > slots {
							t.Errorf("%d at once, of at most %d", n, slots)
						}
						if r%3 > 0 {
							tok.Live()
						}
						live.Add(-1)
						if r%2 > 0 {
							tok.Stopping()
						}
						if !tok.Release() {
							t.Error("a token that nobody released was released")
						}
					}
				})
			}
			wg.Wait()
			if crowd == 0 && refused.Load() > 0 {
				t.Errorf("%d refused, each with a slot free", refused.Load())
			}
			if s := l.Stats(); len(s.Used["host"])+len(s.Used["tenant"]) > 0 || int64(s.Exceeded) != refused.Load() {
				t.Errorf("in the end: %+v, %d refused", s, refused.Load())
			}
		})
	}
}

// Each of many goroutines that hold copies of one token may release it; one does. // R21
func TestOneOfManyReleasesCounts(t *testing.T) {
	l := newLedger(host(1))
	for range 200 {
		tok := admitted(t, l, "x", claim{})
		var wins atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if tok.Release() {
					wins.Add(1)
				}
				tok.Cancel()
			})
		}
		wg.Wait()
		if wins.Load() != 1 {
			t.Fatalf("released %d times", wins.Load())
		}
		used(t, l, "")
	}
}
