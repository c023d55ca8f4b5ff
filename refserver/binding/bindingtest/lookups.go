package bindingtest

import (
	"fmt"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/refserver/binding"
)

func lookups() []Case {
	return []Case{
		{"AnUnknownIDIsBoundToNothing", "R69", func(t *trace) {
			t.bound(box, "p", "")
			t.begin(box, "p", 0)
			t.bound(box, "p", "")
			t.public(box, []string{"p", ""})
		}},
		{"ABindingNeedsNoStart", "R67", func(t *trace) {
			t.bind(box, "p", "minted")
			t.bound(box, "p", "minted")
			t.bound(box, "minted", "")
		}},
		{"AnExpiredStartIsStillFound", "R73", func(t *trace) {
			t.begin(box, "p", -2*binding.Lifetime)
			t.bind(box, "p", "minted")
			t.bound(box, "p", "minted")
			t.public(box, []string{"minted"}, "minted", "p")
		}},
		{"AProcessThatHasEndedIsStillFound", "R73", func(t *trace) {
			t.begin(box, "p", 0)
			t.bind(box, "p", "minted")
			t.end(box, "p", time.Second)
			t.bound(box, "p", "minted")
			t.public(box, []string{"minted"}, "minted", "p")
		}},
		{"NoLookupAnswersForAnotherSandbox", "R73", func(t *trace) { nothingOf(t, other) }},
		{"NoLookupAnswersForAnotherIncarnation", "R73", func(t *trace) { nothingOf(t, again) }},
		{"NamesThatJoinToTheSameAreNotTheSame", "R73", func(t *trace) {
			t.bind(backend.Ref{ID: "a", Instance: "bc"}, "d", "minted")
			for _, ref := range []backend.Ref{
				{ID: "ab", Instance: "c"}, {ID: "abc"}, {Instance: "abc"}, {ID: "A", Instance: "BC"}, {ID: "a", Instance: "b%"},
			} {
				t.bound(ref, "d", "")
				t.public(ref, []string{"minted"})
			}
			t.bound(backend.Ref{ID: "a", Instance: "bc"}, "D", "")
		}},
	}
}

func pages() []Case {
	return []Case{
		{"PublicIsAboutTheIDsAskedForAlone", "R70", func(t *trace) {
			t.bind(box, "p1", "m1")
			t.bind(box, "p2", "m2")
			t.bind(box, "p3", "p3")
			t.begin(box, "p4", 0)
			t.public(box, nil)
			t.public(box, []string{})
			t.public(box, []string{"m2", "m9", "m2", "p1", "p4", "M1"}, "m2", "p2")
			t.public(box, []string{"m1", "m2", "p3"}, "m1", "p1", "m2", "p2", "p3", "p3")
		}},
		{"PublicNamesTheFirstOfSeveral", "R70", func(t *trace) {
			for _, id := range []string{"b", "a", "B", "c"} {
				t.bind(box, id, "minted")
			}
			t.public(box, []string{"minted"}, "minted", "B")
		}},
		{"IDsAreTakenAsTheyAre", "R73", func(t *trace) {
			odd := `"it's" [50%_]\ {}, ü$1 ?` + "\n"
			t.bind(backend.Ref{ID: odd, Instance: odd}, odd, odd+"m")
			t.bound(backend.Ref{ID: odd, Instance: odd}, odd, odd+"m")
			t.public(backend.Ref{ID: odd, Instance: odd}, []string{odd + "m"}, odd+"m", odd)
		}},
		{"APageOfTwoThousandIsOneQuestion", "R72", thousands},
	}
}

// nothingOf says that what is known of one incarnation is not known of another.
func nothingOf(t *trace, stranger backend.Ref) {
	t.begin(box, "p", 0)
	t.bind(box, "p", "minted")
	t.bound(stranger, "p", "")
	t.public(stranger, []string{"minted"})
	t.bind(stranger, "p", "its own")
	t.bound(box, "p", "minted")
	t.bound(stranger, "p", "its own")
}

// thousands asks for many ids at once, of which every other is bound.
func thousands(t *trace) {
	var asked, pairs []string
	for i := range 2000 {
		minted := fmt.Sprint("minted-", i)
		asked = append(asked, minted)
		if i%10 == 0 {
			t.bind(box, fmt.Sprint("p", i), minted)
			pairs = append(pairs, minted, fmt.Sprint("p", i))
		}
	}
	t.public(box, asked, pairs...)
}
