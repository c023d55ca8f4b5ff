package quota_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/quota"
)

// panics fails the test unless f panics with text want.
func panics(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if got := fmt.Sprint(recover()); got != want {
			t.Errorf("panicked with %q, want %q", got, want)
		}
	}()
	f()
}

func TestNewRefusesLimitsThatCannotBeMeant(t *testing.T) {
	panics(t, "quota: limit 2 has no name", func() { newLedger(host(1), quota.Limit[claim]{Max: 1}) })
	panics(t, `quota: two limits are named "host"`, func() { newLedger(host(1), tenant(1), host(2)) })
	panics(t, `quota: limit "host": negative maximum -1`, func() { newLedger(host(-1)) })
}

func TestALedgerNotMadeByNewSaysSo(t *testing.T) {
	var l ledger
	panics(t, "quota: the Ledger was not made by New", func() { _, _ = l.Reserve("x", claim{}) })
	panics(t, "quota: the Ledger was not made by New", func() { l.Adopt("x", claim{}) })
}

func TestAZeroMaximumAdmitsNothing(t *testing.T) {
	exceeded(t, newLedger(host(0)), "x", claim{}, quota.ExceededError{Limit: "host", Want: 1})
}

func TestALedgerWithoutLimitsRefusesDuplicatesOnly(t *testing.T) {
	l := newLedger()
	for i := range 100 {
		admitted(t, l, fmt.Sprint(i), claim{})
	}
	duplicate(t, l, "7", quota.InFlight)
}

func TestMaximaOfTheirOwnAreAskedAtEachReserve(t *testing.T) {
	most := map[string]int64{"A": 1, "B": -1, "C": math.MinInt64}
	l := newLedger(quota.Limit[claim]{Name: "tenant", Max: 99, Key: tenantOf, MaxFor: func(k string) int64 { return most[k] }})
	admitted(t, l, "a1", claim{tenant: "A"})
	exceeded(t, l, "a2", claim{tenant: "A"}, quota.ExceededError{Limit: "tenant", Key: "A", Max: 1, Used: 1, Want: 1})
	most["A"] = 2
	admitted(t, l, "a2", claim{tenant: "A"})
	most["A"] = 0
	exceeded(t, l, "a3", claim{tenant: "A"}, quota.ExceededError{Limit: "tenant", Key: "A", Max: 0, Used: 2, Want: 1})
	exceeded(t, l, "b", claim{tenant: "B"}, quota.ExceededError{Limit: "tenant", Key: "B", Want: 1})
	l.Adopt("c1", claim{tenant: "C"})
	exceeded(t, l, "c2", claim{tenant: "C"}, quota.ExceededError{Limit: "tenant", Key: "C", Used: 1, Want: 1})
}

func TestAClaimThatCostsNothingIsNotSubjectToTheLimit(t *testing.T) {
	l := newLedger(memory(10))
	l.Adopt("big", claim{mem: 11})
	free := admitted(t, l, "free", claim{})
	used(t, l, "memory:11")
	free.Release()
	used(t, l, "memory:11")
	admitted(t, newLedger(memory(0)), "free", claim{})
}

func TestANegativeCostIsMisuseAndChangesNothing(t *testing.T) {
	l := newLedger(host(1), memory(10))
	const text = `quota: limit "memory": negative cost -1`
	panics(t, text, func() { _, _ = l.Reserve("x", claim{mem: -1}) })
	panics(t, text, func() { l.Adopt("x", claim{mem: -1}) })
	used(t, l, "")
	admitted(t, l, "x", claim{mem: 1})
}

func TestHugeCostsNeverReadAsRoom(t *testing.T) {
	l := newLedger(memory(math.MaxInt64))
	a, b := l.Adopt("a", claim{mem: math.MaxInt64 - 1}), l.Adopt("b", claim{mem: math.MaxInt64})
	used(t, l, fmt.Sprint("memory:", int64(math.MaxInt64)))
	exceeded(t, l, "c", claim{mem: 1}, quota.ExceededError{Limit: "memory", Max: math.MaxInt64, Used: math.MaxInt64, Want: 1})
	b.Release()
	exceeded(t, l, "c", claim{mem: math.MaxInt64},
		quota.ExceededError{Limit: "memory", Max: math.MaxInt64, Used: math.MaxInt64 - 1, Want: math.MaxInt64})
	a.Release()
	used(t, l, "")
}

// What a sum has no room for is not forgotten: each claim gives back its own, in whatever order.
func TestHugeCostsAreGivenBackOneByOne(t *testing.T) {
	each := memory(math.MaxInt64)
	each.Name, each.Key = "each", func(c claim) string { return c.tenant }
	l := newLedger(memory(math.MaxInt64), each)
	for _, k := range []string{"a", "b", "c"} {
		l.Adopt(k, claim{mem: math.MaxInt64, tenant: k})
	}
	l.Adopt("c", claim{mem: 5, tenant: "c"})
	const whole = math.MaxInt64
	for _, k := range []string{"a", "b", "c"} {
		left := map[string]int64{"a": whole, "b": 5}[k]
		tok, _ := l.Get(k)
		tok.Release()
		if got := l.Stats().Used["memory"][""]; got != left {
			t.Errorf("%d are used after %s was released, want %d", got, k, left)
		}
	}
	used(t, l, "")
}

func TestAKeyThatEqualsNothingIsRefused(t *testing.T) {
	floats := quota.New[float64, claim](quota.Config{}, host(1))
	panics(t, "quota: key NaN is not equal to itself", func() { _, _ = floats.Reserve(math.NaN(), claim{}) })
	panics(t, "quota: key NaN is not equal to itself", func() { floats.Adopt(math.NaN(), claim{}) })

	anys := quota.New[any, claim](quota.Config{}, host(1))
	panics(t, "runtime error: comparing uncomparable type []int", func() { _, _ = anys.Reserve([]int{1}, claim{}) })
	panics(t, "hash of unhashable type: []int", func() { anys.Get([]int{1}) })
	if _, err := anys.Reserve("x", claim{}); err != nil {
		t.Errorf("the ledger is of no use any more: %v", err)
	}
}

func TestAMarkOfAnotherLedgerIsMisuse(t *testing.T) {
	other := newLedger()
	other.Adopt("x", claim{})
	panics(t, "quota: Reconcile with a Mark of another Ledger", func() {
		newLedger().Reconcile(quota.Snapshot[string]{Since: other.Mark(), Complete: true, Has: nothing})
	})
}

func TestAKeyThatWasNeverReservedHasNoToken(t *testing.T) {
	l := newLedger(host(1))
	tok, counted := l.Get("x")
	if counted || tok != (token{}) {
		t.Errorf("Get = %v, %v", tok, counted)
	}
	want := admitted(t, l, "x", claim{})
	if tok, counted := l.Get("x"); !counted || tok != want {
		t.Errorf("Get = %v, %v, want the token of Reserve", tok, counted)
	}
}

func TestTheZeroTokenDoesNothing(t *testing.T) {
	inert(t, token{})
}

func TestATokenOfAReleasedClaimDoesNothing(t *testing.T) { // R21, R22
	l := newLedger(host(2), tenant(2))
	tok := admitted(t, l, "x", claim{tenant: "A"})
	twin := tok
	ok(t, "Release through the copy", twin.Release(), true)
	inert(t, tok)
	inert(t, twin)
	again := admitted(t, l, "x", claim{tenant: "B"})
	inert(t, tok)
	used(t, l, "host:1 tenant/B:1")
	ok(t, "Live", again.Live(), true)
	inert(t, tok)
	state(t, again, quota.Live)
	again.Stopping()
	inert(t, tok)
	state(t, again, quota.Stopping)
}

// inert fails the test unless all calls of tok change nothing and say so.
func inert(t *testing.T, tok token) {
	t.Helper()
	ok(t, "Live", tok.Live(), false)
	ok(t, "Stopping", tok.Stopping(), false)
	ok(t, "Cancel", tok.Cancel(), false)
	ok(t, "Release", tok.Release(), false)
	state(t, tok, 0)
}

func TestRefusalsNameTheLimitItsKeyItsMaximumAndItsUse(t *testing.T) { // R88
	mock := clock.NewMock()
	mock.Set(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	l := quota.New[string](quota.Config{Clock: mock}, host(3), tenant(1))
	admitted(t, l, "a", claim{tenant: "acme"}).Live()
	for k, want := range map[string]string{
		"a": "quota: a is counted already: live since 2026-01-02T03:04:05Z",
		"b": `quota: limit "tenant" of "acme" exceeded: 1 used of at most 1, 1 wanted`,
	} {
		if _, err := l.Reserve(k, claim{tenant: "acme"}); err == nil || err.Error() != want {
			t.Errorf("Reserve(%q) = %v, want %s", k, err, want)
		}
	}
	err := error(&quota.ExceededError{Limit: "host", Max: 3, Used: 2, Want: 2})
	if want := `quota: limit "host" exceeded: 2 used of at most 3, 2 wanted`; err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if !strings.HasPrefix(errors.Join(err).Error(), "quota: ") {
		t.Error("the text does not name the package")
	}
}

func TestStatesReadAsWords(t *testing.T) {
	for s, want := range map[quota.State]string{quota.InFlight: "in flight", quota.Live: "live", quota.Stopping: "stopping", 9: "state 9"} {
		if s.String() != want {
			t.Errorf("%d reads %q, want %q", s, s, want)
		}
	}
}

func TestStatsCountWhatWasDecided(t *testing.T) {
	l := newLedger(host(1), tenant(9))
	admitted(t, l, "a", claim{tenant: "A"})
	_, _ = l.Reserve("a", claim{})
	_, _ = l.Reserve("b", claim{})
	_, _ = l.Reserve("b", claim{})
	l.Adopt("c", claim{tenant: "C"})
	l.Adopt("c", claim{tenant: "C"})
	s := l.Stats()
	if s.Reserved != 1 || s.Duplicates != 1 || s.Exceeded != 2 || s.Adopted != 1 || s.Reconciled != 0 {
		t.Errorf("counted %+v", s)
	}
	s.Used["host"][""] = 99 // a copy
	used(t, l, "host:2 tenant/A:1 tenant/C:1")
}

func TestMoreLimitsThanUsualWork(t *testing.T) {
	var limits []quota.Limit[claim]
	for i := range 12 {
		limits = append(limits, quota.Limit[claim]{Name: fmt.Sprint(i), Max: int64(1 + i/11*98)})
	}
	l := newLedger(limits...)
	tok := admitted(t, l, "a", claim{})
	exceeded(t, l, "b", claim{}, quota.ExceededError{Limit: "0", Max: 1, Used: 1, Want: 1})
	tok.Release()
	used(t, l, "")
}

func TestReserveAndReleaseDoNotAllocate(t *testing.T) {
	l := keyed()
	if got := testing.AllocsPerRun(100, func() {
		tok, _ := l.Reserve("x", claim{"A", 512})
		tok.Live()
		tok.Stopping()
		tok.Release()
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}
