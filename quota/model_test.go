package quota_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/keepwell-go/keepwell/quota"
)

// counted is what the model knows of one claim.
type counted struct {
	claim
	tok   token
	state quota.State
	lived int // the number of the step that last made it live
}

// model is a ledger in the plain: one map, and use summed up anew each time it is asked for. Reconciles run beside it in
// goroutines of their own, since a list is asked while the ledger goes on being used.
type model struct {
	ledger   *ledger
	limits   map[string]int64
	claims   map[string]*counted
	order    []string // keys by admission
	stale    []token  // of all claims that were released
	released map[token]int
	step     int
	running  []*reconcile
}

// reconcile is one that runs: what it may free unless that changes, and what it did free.
type reconcile struct {
	may  map[string]counted
	has  map[string]bool
	done chan []string
}

var keys = []string{"a", "b", "c", "d", "e"}

func newModel(t *rapid.T) *model {
	limits := map[string]int64{"host": rapid.Int64Range(0, 4).Draw(t, "host"), "tenant": 2, "memory": 10}
	return &model{
		ledger: newLedger(host(limits["host"]), tenant(limits["tenant"]), memory(limits["memory"])), limits: limits,
		claims: make(map[string]*counted), released: make(map[token]int),
	}
}

func drawClaim(t *rapid.T) claim {
	return claim{rapid.SampledFrom([]string{"A", "B"}).Draw(t, "tenant"), rapid.Int64Range(0, 6).Draw(t, "memory")}
}

// use sums up what the claims use of one limit, under the key that c has there.
func (m *model) use(limit string, c claim) (sum int64) {
	for _, has := range m.claims {
		switch {
		case limit == "host":
			sum++
		case limit == "tenant" && has.tenant == c.tenant:
			sum++
		case limit == "memory":
			sum += has.mem
		}
	}
	return sum
}

// refusal is the error that Reserve ought to return.
func (m *model) refusal(k string, c claim) error {
	if is := m.claims[k]; is != nil {
		return &quota.DuplicateError{Key: k, State: is.state}
	}
	for _, e := range []quota.ExceededError{
		{Limit: "host", Want: 1}, {Limit: "tenant", Key: c.tenant, Want: 1}, {Limit: "memory", Want: c.mem},
	} {
		e.Max, e.Used = m.limits[e.Limit], m.use(e.Limit, c)
		if e.Want > 0 && e.Used+e.Want > e.Max {
			return &e
		}
	}
	return nil
}

func (m *model) reserve(t *rapid.T) {
	k, c := rapid.SampledFrom(keys).Draw(t, "key"), drawClaim(t)
	want := m.refusal(k, c)
	tok, got := m.ledger.Reserve(k, c)
	var dup *quota.DuplicateError
	if errors.As(got, &dup) {
		dup.Since = time.Time{}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("Reserve(%q, %v) = %v, want %v", k, c, got, want)
	}
	if want == nil {
		m.admit(k, &counted{claim: c, tok: tok, state: quota.InFlight})
	}
}

func (m *model) adopt(t *rapid.T) {
	k, c := rapid.SampledFrom(keys).Draw(t, "key"), drawClaim(t)
	tok := m.ledger.Adopt(k, c)
	if is := m.claims[k]; is == nil {
		m.admit(k, &counted{tok: tok})
	} else if is.tok != tok {
		t.Fatalf("Adopt(%q) returned another token than the one that is counted", k)
	}
	is := m.claims[k]
	is.claim, is.state, is.lived = c, quota.Live, m.step
}

func (m *model) admit(k string, is *counted) {
	m.claims[k] = is
	m.order = append(m.order, k)
}

func (m *model) free(k string) {
	m.stale = append(m.stale, m.claims[k].tok)
	delete(m.claims, k)
	m.order = slices.DeleteFunc(m.order, func(o string) bool { return o == k })
}

// call calls one method of a token that is counted, or of a stale one.
func (m *model) call(t *rapid.T) {
	name := rapid.SampledFrom([]string{"Live", "Stopping", "Cancel", "Release"}).Draw(t, "method")
	k, is := "", &counted{}
	if len(m.order) > 0 && rapid.IntRange(0, 4).Draw(t, "stale") > 0 {
		k = rapid.SampledFrom(m.order).Draw(t, "key")
		is = m.claims[k]
	} else if len(m.stale) > 0 {
		is.tok = rapid.SampledFrom(m.stale).Draw(t, "token")
	}
	s := is.state
	var got, want bool
	switch name {
	case "Live":
		got, want = is.tok.Live(), s == quota.InFlight || s == quota.Stopping
	case "Stopping":
		got, want = is.tok.Stopping(), s == quota.Live
	case "Cancel":
		got, want = is.tok.Cancel(), s == quota.InFlight || s == quota.Stopping
	case "Release":
		got, want = is.tok.Release(), s != 0
	}
	if got != want {
		t.Fatalf("%s of a token whose state is %v = %v", name, s, got)
	}
	switch {
	case !want:
	case name == "Release", name == "Cancel" && s == quota.InFlight:
		if m.released[is.tok]++; m.released[is.tok] > 1 {
			t.Fatalf("a token was released twice")
		}
		m.free(k)
	case name == "Stopping":
		is.state = quota.Stopping
	default:
		is.state, is.lived = quota.Live, m.step
	}
}

// reconcile starts a Reconcile whose Has yields for a while.
func (m *model) reconcile(t *rapid.T) {
	r := &reconcile{may: make(map[string]counted), has: make(map[string]bool), done: make(chan []string, 1)}
	s := quota.Snapshot[string]{Since: m.ledger.Mark(), Complete: rapid.IntRange(0, 4).Draw(t, "complete") > 0}
	for _, k := range keys {
		r.has[k] = rapid.Bool().Draw(t, k)
		if is := m.claims[k]; is != nil && is.state == quota.Live && !r.has[k] && s.Complete {
			r.may[k] = *is
		}
	}
	list := time.Duration(rapid.IntRange(0, 3).Draw(t, "list"))
	wait := time.Duration(rapid.IntRange(0, 3).Draw(t, "wait"))
	s.Has = func(k string) bool { time.Sleep(wait); return r.has[k] }
	go func() {
		time.Sleep(list) // the list itself, during which claims change
		r.done <- m.ledger.Reconcile(s)
	}()
	m.running = append(m.running, r)
	m.settle(t)
}

// pass lets time go by: Reconciles go on, and some end.
func (m *model) pass(t *rapid.T) {
	time.Sleep(time.Duration(rapid.IntRange(1, 4).Draw(t, "time")))
	m.settle(t)
}

// settle compares what the Reconciles that have ended freed with what they might: all that is as it was when they began.
func (m *model) settle(t *rapid.T) {
	synctest.Wait()
	may, freed := make(map[string]bool), []string{}
	m.running = slices.DeleteFunc(m.running, func(r *reconcile) bool {
		select {
		case got := <-r.done:
			freed = append(freed, got...)
			for k, was := range r.may {
				if is := m.claims[k]; is != nil && is.tok == was.tok && is.state == quota.Live && is.lived == was.lived {
					may[k] = true
				}
			}
			return true
		default:
			return false
		}
	})
	want := slices.Sorted(maps.Keys(may))
	slices.Sort(freed)
	if !slices.Equal(freed, want) {
		t.Fatalf("Reconcile freed %q, want %q", freed, want)
	}
	for _, k := range want {
		m.free(k)
	}
}

// check compares all that can be seen of the ledger with the model.
func (m *model) check(t *rapid.T) {
	m.step++
	var got, want []string
	for h := range m.ledger.Holders() {
		got = append(got, fmt.Sprint(h.Key, h.Claim, h.State))
	}
	sums := map[string]map[string]int64{"host": {}, "tenant": {}, "memory": {}}
	for _, k := range m.order {
		is := m.claims[k]
		want = append(want, fmt.Sprint(k, is.claim, is.state))
		for limit, key := range map[string]string{"host": "", "tenant": is.tenant, "memory": ""} {
			if n := m.use(limit, is.claim); n > 0 {
				sums[limit][key] = n
			}
		}
		if s, ok := is.tok.State(); s != is.state || !ok {
			t.Fatalf("the token of %q is %v, want %v", k, s, is.state)
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("holders %q, want %q", got, want)
	}
	for limit, used := range m.ledger.Stats().Used {
		if !maps.Equal(used, sums[limit]) {
			t.Fatalf("%s: used %v, but the claims sum up to %v", limit, used, sums[limit])
		}
	}
	for _, tok := range m.stale {
		if _, ok := tok.State(); ok {
			t.Fatalf("the token of a released claim is counted")
		}
	}
}

// After any interleaving what is used is the sum of what is counted, by limit and key; each token is released once; and a
// Reconcile frees what it may and nothing else, whatever happens while its list is made and asked. // R21, R22, R87
func TestTheLedgerIsTheSumOfItsClaims(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			m := newModel(t)
			defer time.Sleep(time.Hour) // for what still runs, so that a failure is not told as a deadlock
			t.Repeat(map[string]func(*rapid.T){
				"reserve": m.reserve, "adopt": m.adopt, "call": m.call, "call again": m.call,
				"reconcile": m.reconcile, "pass": m.pass, "": m.check,
			})
			time.Sleep(time.Hour)
			m.settle(t)
			for _, is := range m.claims {
				is.tok.Release()
			}
			if got := useOf(m.ledger); got != "" {
				t.Fatalf("all is released, and %q used", got)
			}
			if n := len(slices.Collect(m.ledger.Holders())); n != 0 {
				t.Fatalf("all is released, and %d held", n)
			}
		})
	})
}
