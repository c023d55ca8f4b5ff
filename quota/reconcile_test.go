package quota_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keepwell-go/keepwell/quota"
)

// nothing is the Has of a list that is empty.
func nothing(string) bool { return false }

// frees fails the test unless Reconcile frees exactly want.
func frees(t *testing.T, l *ledger, s quota.Snapshot[string], want ...string) {
	t.Helper()
	if got := l.Reconcile(s); !slices.Equal(got, want) {
		t.Errorf("Reconcile freed %q, want %q", got, want)
	}
}

func TestABadListFreesNothing(t *testing.T) { // R87
	l := newLedger(host(9))
	l.Adopt("x", claim{})
	for name, s := range map[string]quota.Snapshot[string]{
		"failed":                {},
		"incomplete":            {Since: l.Mark(), Has: nothing},
		"without objects":       {Since: l.Mark(), Complete: true},
		"begun before anything": {Complete: true, Has: nothing},
	} {
		t.Run(name, func(t *testing.T) {
			frees(t, l, s)
			used(t, l, "host:1")
		})
	}
	frees(t, l, quota.Snapshot[string]{Since: l.Mark(), Complete: true, Has: nothing}, "x")
	used(t, l, "")
}

func TestOnlyWhatWasLiveBeforeTheListAndIsAbsentIsFreed(t *testing.T) {
	l := newLedger(host(99))
	admitted(t, l, "in flight", claim{})
	l.Adopt("absent", claim{})
	l.Adopt("listed", claim{})
	l.Adopt("stopping", claim{}).Stopping()
	admitted(t, l, "created", claim{}).Live()
	since := l.Mark()
	l.Adopt("young", claim{})
	frees(t, l, quota.Snapshot[string]{
		Since: since, Complete: true,
		Has: func(k string) bool {
			if !slices.Contains([]string{"absent", "listed", "created"}, k) {
				t.Errorf("asked for %q, which no list can free", k)
			}
			return k == "listed"
		},
	}, "absent", "created")
	if got := l.Stats().Reconciled; got != 2 {
		t.Errorf("counted %d, want 2", got)
	}
	used(t, l, "host:4")
}

func TestWhatChangesWhileTheListIsAskedStays(t *testing.T) {
	for name, change := range map[string]func(l *ledger, tok token){
		"released, and its slot reused": func(l *ledger, tok token) { tok.Release(); _, _ = l.Reserve("y", claim{}) },
		"released, and reserved anew":   func(l *ledger, tok token) { tok.Release(); _, _ = l.Reserve("x", claim{}) },
		"released, and adopted anew":    func(l *ledger, tok token) { tok.Release(); l.Adopt("x", claim{}) },
		"adopted again":                 func(l *ledger, tok token) { l.Adopt("x", claim{}) },
		"stopping":                      func(l *ledger, tok token) { tok.Stopping() },
		"its teardown failed":           func(l *ledger, tok token) { tok.Stopping(); tok.Cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(host(9))
			tok := l.Adopt("x", claim{})
			frees(t, l, quota.Snapshot[string]{
				Since: l.Mark(), Complete: true,
				Has: func(string) bool { change(l, tok); return false },
			})
			used(t, l, "host:1")
		})
	}
}

func TestAClaimThatIsLiveAgainIsYoungerThanTheList(t *testing.T) {
	l := newLedger(host(9))
	tok := l.Adopt("x", claim{})
	tok.Stopping()
	since := l.Mark()
	tok.Cancel()
	frees(t, l, quota.Snapshot[string]{Since: since, Complete: true, Has: nothing})
	tok.Stopping()
	since = l.Mark()
	tok.Live()
	frees(t, l, quota.Snapshot[string]{Since: since, Complete: true, Has: nothing})
	l.Adopt("x", claim{})
	frees(t, l, quota.Snapshot[string]{Since: l.Mark(), Complete: true, Has: nothing}, "x")
}

func TestFreedKeysComeInTheOrderOfAdmission(t *testing.T) {
	l := newLedger()
	var want []string
	for i := range 50 {
		k := fmt.Sprint(i * 7 % 50)
		want = append(want, k)
		l.Adopt(k, claim{})
	}
	frees(t, l, quota.Snapshot[string]{Since: l.Mark(), Complete: true, Has: nothing}, want...)
}

func TestHoldersSayWhoHoldsWhatSinceWhen(t *testing.T) { // R88
	mock := clock.NewMock()
	l := quota.New[string](quota.Config{Clock: mock}, host(9))
	a := admitted(t, l, "a", claim{"A", 1})
	mock.Add(time.Second)
	b := l.Adopt("b", claim{"B", 2})
	admitted(t, l, "c", claim{"C", 3}).Release()
	mock.Add(time.Second)
	d := admitted(t, l, "d", claim{"D", 4})
	b.Stopping()
	d.Live()
	a.Live()
	mock.Add(time.Second)
	l.Adopt("a", claim{"A", 1}) // confirms what is live, since when it was
	a.Live()
	holders(t, l, "a A live since 2, b B stopping since 2, d D live since 2")
	b.Cancel()
	holders(t, l, "a A live since 2, b B live since 3, d D live since 2")
	for range l.Holders() {
		a.Release() // the loop body may call the ledger, and end early
		break
	}
	holders(t, l, "b B live since 3, d D live since 2")
}

func holders(t *testing.T, l *ledger, want string) {
	t.Helper()
	var got []string
	for h := range l.Holders() {
		got = append(got, fmt.Sprintf("%s %s %v since %d", h.Key, h.Claim.tenant, h.State, h.Since.Unix()))
	}
	if g := strings.Join(got, ", "); g != want {
		t.Errorf("holders %s\nwant    %s", g, want)
	}
}

func TestWhatTheLedgerDecidesAloneIsLogged(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	l := quota.New[string](quota.Config{Logger: zap.New(core)}, host(1), tenant(5), memory(10))
	l.Adopt("a", claim{mem: 10})
	frees(t, l, quota.Snapshot[string]{Since: l.Mark(), Complete: true, Has: func(string) bool { return true }})
	_, _ = l.Reserve("b", claim{})
	if logs.Len() != 0 {
		t.Fatalf("logged %v, all of it told to the caller anyway", logs.All())
	}
	l.Adopt("c", claim{mem: 1})
	l.Adopt("d", claim{}) // past the memory that is used up, of which it wants none
	l.Reconcile(quota.Snapshot[string]{Since: l.Mark(), Complete: true, Has: func(k string) bool { return k != "d" }})
	l.Reconcile(quota.Snapshot[string]{Since: l.Mark(), Complete: true, Has: nothing})
	var got []string
	for _, e := range logs.All() {
		got = append(got, fmt.Sprint(e.Level, " ", e.Message, " ", e.ContextMap()))
	}
	want := []string{
		"warn quota: adopted past a limit map[key: limit:host max:1 used:2]",
		"warn quota: adopted past a limit map[key: limit:memory max:10 used:11]",
		"warn quota: adopted past a limit map[key: limit:host max:1 used:3]",
		"info quota: freed claims that no longer exist map[claims:1]",
		"info quota: freed claims that no longer exist map[claims:2]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("logged %q\nwant   %q", got, want)
	}
}
