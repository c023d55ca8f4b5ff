package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAWeakTestLeavesTheBoundariesAndAStrongOneNothing(t *testing.T) {
	for dir, want := range map[string][]string{
		"testdata/weak": {
			"fare.go Fare: use <= `age < 6`",
			"fare.go Fare: add one to `6`",
			"fare.go Fare: use >= `age > 64`",
			"fare.go Fare: add one to `64`",
		},
		"testdata/strong": nil,
	} {
		r, err := measure(t.Context(), dir, 0, 1, 2, "")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(r.unexplained, want) {
			t.Errorf("%s leaves %q, want %q", dir, r.unexplained, want)
		}
		if r.tried != 11 || r.killed != r.tried-len(want) {
			t.Errorf("%s: %d tried and %d killed, want 11 and %d", dir, r.tried, r.killed, 11-len(want))
		}
	}
}

// Each place is changed once: a mutant that is counted and is not in the code would survive whatever the tests do.
func TestEachMutantStandsInTheCode(t *testing.T) {
	pkg, err := load("testdata/weak")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range pkg.mutants {
		got = append(got, strings.TrimPrefix(m.name, "fare.go Fare: "))
	}
	want := []string{
		"negate the condition `age < 6 || pass`", "use && `age < 6 || pass`", "use <= `age < 6`", "add one to `6`",
		"remove `cents = 200`", "add one to `200`",
		"negate the condition `age > 64`", "use >= `age > 64`", "add one to `64`",
		"remove `cents = 100`", "add one to `100`",
	}
	if !slices.Equal(got, want) {
		t.Errorf("mutants\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestANamedMutationIsTriedAloneAndMustStandThereOnce(t *testing.T) {
	named := func(dir, old string) []namedMutation {
		return []namedMutation{{rule: "children of six pay", file: dir + "/fare.go", old: old, new: "age <= 6"}}
	}
	for dir, want := range map[string][]string{
		"testdata/weak":   {"children of six pay, in testdata/weak/fare.go"},
		"testdata/strong": nil,
	} {
		tried, survived, err := tryNamed(t.Context(), named(dir, "age < 6"), dir, "", time.Minute)
		if err != nil || tried != 1 || !slices.Equal(survived, want) {
			t.Errorf("%s: %d tried, survived %q, %v; want 1 and %q", dir, tried, survived, err, want)
		}
	}
	for old, want := range map[string]string{
		"age < 7": "children of six pay, in testdata/weak/fare.go: the text to change does not stand there exactly once",
		"cents":   "children of six pay, in testdata/weak/fare.go: the text to change does not stand there exactly once",
	} {
		_, _, err := tryNamed(t.Context(), named("testdata/weak", old), "testdata/weak", "", time.Minute)
		if err == nil || err.Error() != want {
			t.Errorf("changing %q: %v, want %s", old, err, want)
		}
	}
	if tried, _, err := tryNamed(t.Context(), named("testdata/weak", "gone"), "testdata/strong", "", time.Minute); tried != 0 || err != nil {
		t.Errorf("a mutation of another package was tried: %d, %v", tried, err)
	}
}

func TestWhatIsExplainedAndNoSurvivorIsStale(t *testing.T) {
	reasons := map[string]string{"a f.go F: one": "why", "a f.go F: two": "why", "b f.go F: one": "why"}
	survivors := []mutant{{1, "f.go F: two"}, {2, "f.go F: three"}}
	if got, want := stale(reasons, "a", survivors), []string{"f.go F: one"}; !slices.Equal(got, want) {
		t.Errorf("stale %q, want %q", got, want)
	}
}

func TestEverySurvivorThatIsExplainedHasAReason(t *testing.T) {
	if _, err := readExplained(); err != nil {
		t.Error(err)
	}
}
