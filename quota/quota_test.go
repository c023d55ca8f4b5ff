package quota_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/keepwell-go/keepwell/quota"
)

// claim is what the tests count: one sandbox of a tenant, with some memory.
type claim struct {
	tenant string
	mem    int64
}

func tenantOf(c claim) string { return c.tenant }
func memOf(c claim) int64     { return c.mem }

func host(most int64) quota.Limit[claim] { return quota.Limit[claim]{Name: "host", Max: most} }

func tenant(most int64) quota.Limit[claim] {
	return quota.Limit[claim]{Name: "tenant", Max: most, Key: tenantOf}
}

func memory(most int64) quota.Limit[claim] {
	return quota.Limit[claim]{Name: "memory", Max: most, Cost: memOf}
}

type (
	ledger = quota.Ledger[string, claim]
	token  = quota.Token[string, claim]
)

func newLedger(limits ...quota.Limit[claim]) *ledger {
	return quota.New[string](quota.Config{}, limits...)
}

// admitted reserves k and fails the test if it is refused.
func admitted(t *testing.T, l *ledger, k string, c claim) token {
	t.Helper()
	tok, err := l.Reserve(k, c)
	if err != nil {
		t.Fatalf("Reserve(%q) was refused: %v", k, err)
	}
	return tok
}

// exceeded fails the test unless Reserve is refused with exactly want.
func exceeded(t *testing.T, l *ledger, k string, c claim, want quota.ExceededError) {
	t.Helper()
	tok, err := l.Reserve(k, c)
	var got *quota.ExceededError
	if !errors.As(err, &got) || *got != want {
		t.Fatalf("Reserve(%q) = %v, want %v", k, err, &want)
	}
	if tok != (token{}) {
		t.Errorf("a refused Reserve(%q) returned a token", k)
	}
}

// duplicate fails the test unless Reserve is refused since k is counted in state s.
func duplicate(t *testing.T, l *ledger, k string, s quota.State) {
	t.Helper()
	_, err := l.Reserve(k, claim{})
	var got *quota.DuplicateError
	if !errors.As(err, &got) || got.Key != any(k) || got.State != s {
		t.Fatalf("Reserve(%q) = %v, want a duplicate that is %v", k, err, s)
	}
}

// used fails the test unless the use of the limits reads want, as in "host:2 tenant/A:1".
func used(t *testing.T, l *ledger, want string) {
	t.Helper()
	if got := useOf(l); got != want {
		t.Fatalf("used %q, want %q", got, want)
	}
}

func useOf(l *ledger) (s string) {
	use := l.Stats().Used
	for _, name := range slices.Sorted(maps.Keys(use)) {
		for _, key := range slices.Sorted(maps.Keys(use[name])) {
			at := name
			if key != "" {
				at += "/" + key
			}
			if s != "" {
				s += " "
			}
			s += fmt.Sprintf("%s:%d", at, use[name][key])
		}
	}
	return s
}

// ok fails the test unless got is want.
func ok(t *testing.T, what string, got, want bool) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// state fails the test unless tok is counted in state want; the zero State: not counted.
func state(t *testing.T, tok token, want quota.State) {
	t.Helper()
	if got, counted := tok.State(); got != want || counted != (want != 0) {
		t.Errorf("State() = %v, %v, want %v", got, counted, want)
	}
}

func TestCreatesInFlightCountAgainstTheHost(t *testing.T) { // R18
	l := newLedger(host(2))
	a := admitted(t, l, "a", claim{})
	admitted(t, l, "b", claim{})
	exceeded(t, l, "c", claim{}, quota.ExceededError{Limit: "host", Max: 2, Used: 2, Want: 1})
	ok(t, "Release", a.Release(), true)
	admitted(t, l, "c", claim{})
	exceeded(t, l, "d", claim{}, quota.ExceededError{Limit: "host", Max: 2, Used: 2, Want: 1})
}

func TestCreatesInFlightCountAgainstTheirTenantOnly(t *testing.T) { // R19
	l := newLedger(host(9), tenant(1))
	admitted(t, l, "a1", claim{tenant: "A"})
	exceeded(t, l, "a2", claim{tenant: "A"}, quota.ExceededError{Limit: "tenant", Key: "A", Max: 1, Used: 1, Want: 1})
	admitted(t, l, "b1", claim{tenant: "B"})
	used(t, l, "host:2 tenant/A:1 tenant/B:1")
}

func TestADuplicateIsJudgedBeforeTheLimits(t *testing.T) { // R20
	l := newLedger(host(1))
	tok := admitted(t, l, "x", claim{})
	duplicate(t, l, "x", quota.InFlight)
	tok.Live()
	duplicate(t, l, "x", quota.Live)
	tok.Stopping()
	duplicate(t, l, "x", quota.Stopping)
	tok.Release()
	admitted(t, l, "x", claim{})
}

func TestARefusalByOneLimitChargesNone(t *testing.T) {
	l := newLedger(host(9), tenant(1), memory(100))
	admitted(t, l, "a", claim{"A", 40})
	exceeded(t, l, "b", claim{"B", 61}, quota.ExceededError{Limit: "memory", Max: 100, Used: 40, Want: 61})
	exceeded(t, l, "c", claim{"A", 60}, quota.ExceededError{Limit: "tenant", Key: "A", Max: 1, Used: 1, Want: 1})
	used(t, l, "host:1 memory:40 tenant/A:1")
	admitted(t, l, "b", claim{"B", 60}) // exactly what is left
	used(t, l, "host:2 memory:100 tenant/A:1 tenant/B:1")
}

func TestAFailedCreateGivesBackItsShare(t *testing.T) { // R21
	fail := errors.New("engine says no")
	create := func(l *ledger, work func() error) error {
		tok, err := l.Reserve("x", claim{"A", 5})
		if err != nil {
			return err
		}
		defer tok.Cancel()
		if err := work(); err != nil {
			return err
		}
		tok.Live()
		return nil
	}
	for name, work := range map[string]func() error{
		"error": func() error { return fail },
		"panic": func() error { panic(fail) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(host(1), tenant(1), memory(5))
			func() {
				defer func() { _ = recover() }()
				if err := create(l, work); !errors.Is(err, fail) {
					t.Errorf("create = %v", err)
				}
			}()
			used(t, l, "")
			if err := create(l, func() error { return nil }); err != nil {
				t.Errorf("the next create = %v", err)
			}
			used(t, l, "host:1 memory:5 tenant/A:1")
		})
	}
}

func TestASlotIsHeldUntilTeardownIsConfirmed(t *testing.T) { // R83, R86
	l := newLedger(host(1))
	tok := admitted(t, l, "x", claim{})
	tok.Live()
	full := quota.ExceededError{Limit: "host", Max: 1, Used: 1, Want: 1}

	func() { // a teardown whose outcome is unknown
		ok(t, "Stopping", tok.Stopping(), true)
		defer tok.Cancel()
		exceeded(t, l, "y", claim{}, full)
	}()
	state(t, tok, quota.Live)
	exceeded(t, l, "y", claim{}, full)

	func() { // its retry, confirmed
		ok(t, "Stopping", tok.Stopping(), true)
		defer tok.Cancel()
		ok(t, "Release", tok.Release(), true)
	}()
	admitted(t, l, "y", claim{})
}

func TestTransitionsAreOrderedAndIdempotent(t *testing.T) {
	type step struct {
		call string
		want bool
		then quota.State
	}
	const F, L, S = quota.InFlight, quota.Live, quota.Stopping
	for name, steps := range map[string][]step{
		"whole life":        {{"live", true, L}, {"live", false, L}, {"stopping", true, S}, {"stopping", false, S}, {"release", true, 0}, {"release", false, 0}},
		"failed create":     {{"stopping", false, F}, {"cancel", true, 0}, {"cancel", false, 0}, {"live", false, 0}, {"stopping", false, 0}, {"release", false, 0}},
		"failed teardown":   {{"live", true, L}, {"stopping", true, S}, {"cancel", true, L}, {"cancel", false, L}, {"stopping", true, S}, {"live", true, L}},
		"release in flight": {{"release", true, 0}, {"cancel", false, 0}},
		"release live":      {{"live", true, L}, {"release", true, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(host(1))
			tok := admitted(t, l, "x", claim{})
			calls := map[string]func() bool{"live": tok.Live, "stopping": tok.Stopping, "release": tok.Release, "cancel": tok.Cancel}
			for _, s := range steps {
				ok(t, s.call, calls[s.call](), s.want)
				state(t, tok, s.then)
				if _, counted := l.Get("x"); counted != (s.then != 0) {
					t.Errorf("after %s: Get says counted = %v", s.call, counted)
				}
			}
		})
	}
}

func TestAnAdoptionMayPassALimitAndThenNothingIsAdmittedUntilBelow(t *testing.T) {
	l := newLedger(host(2))
	a, b, c := l.Adopt("a", claim{}), l.Adopt("b", claim{}), l.Adopt("c", claim{})
	state(t, c, quota.Live)
	used(t, l, "host:3")
	exceeded(t, l, "d", claim{}, quota.ExceededError{Limit: "host", Max: 2, Used: 3, Want: 1})
	a.Release()
	exceeded(t, l, "d", claim{}, quota.ExceededError{Limit: "host", Max: 2, Used: 2, Want: 1})
	b.Release()
	admitted(t, l, "d", claim{})
}

func TestAdoptingWhatIsCountedIsTheSameTokenLive(t *testing.T) {
	l := newLedger(host(9), tenant(9))
	tok := admitted(t, l, "x", claim{tenant: "A"})
	if again := l.Adopt("x", claim{tenant: "B"}); again != tok {
		t.Errorf("Adopt returned another token")
	}
	state(t, tok, quota.Live)
	used(t, l, "host:1 tenant/B:1")
	tok.Stopping()
	l.Adopt("x", claim{tenant: "B"})
	state(t, tok, quota.Live)
	ok(t, "Release", tok.Release(), true)
	used(t, l, "")
}

func TestExactlyAsManyAreAdmittedAsFit(t *testing.T) { // R18, R19
	const most, callers = 7, 64
	l := newLedger(host(most), tenant(most))
	var wg sync.WaitGroup
	var mu sync.Mutex
	var in []token
	for i := range callers {
		wg.Go(func() {
			tok, err := l.Reserve(fmt.Sprint(i), claim{tenant: "A"})
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			in = append(in, tok)
		})
	}
	wg.Wait()
	if len(in) != most {
		t.Fatalf("admitted %d, want %d", len(in), most)
	}
	used(t, l, "host:7 tenant/A:7")
	if s := l.Stats(); s.Reserved != most || s.Exceeded != callers-most {
		t.Errorf("counted %d admitted and %d refused", s.Reserved, s.Exceeded)
	}
}
