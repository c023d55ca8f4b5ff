package fresh_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwell-go/keepwell/registry/fresh"
)

func TestTheWorkIsToldTheUnionOfTheKeys(t *testing.T) {
	for _, tt := range []struct {
		name string
		asks [][]string
		want []string
	}{
		{"one", [][]string{{"a"}}, []string{"a"}},
		{"two of one caller", [][]string{{"b", "a"}}, []string{"a", "b"}},
		{"overlapping", [][]string{{"a", "b"}, {"b", "c"}, {"a"}}, []string{"a", "b", "c"}},
		{"repeated by one caller", [][]string{{"a", "a", "b"}}, []string{"a", "b"}},
		{"the same twice", [][]string{{"a", "a"}}, []string{"a"}},
		{"somebody wants everything", [][]string{{"a"}, {}, {"b"}}, nil},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			s := &source{}
			run(t, s, fresh.Config{}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
				first := ask(t.Context(), c, tt.asks[0]...) // starts at once
				var last <-chan answer
				for _, keys := range tt.asks {
					last = ask(t.Context(), c, keys...)
				}
				<-first
				<-last
			})
			alone := slices.Compact(slices.Sorted(slices.Values(tt.asks[0])))
			if !slices.Equal(s.keys[0], alone) || !slices.Equal(s.keys[1], tt.want) || (s.keys[1] == nil) != (tt.want == nil) {
				t.Errorf("told %q alone and %q together, want %q and %q", s.keys[0], s.keys[1], alone, tt.want)
			}
		})
	}
}

func TestTheKeysOfThoseWhoLeftAreForgotten(t *testing.T) { // R81
	for _, tt := range []struct {
		name          string
		leaves, stays []string
		want          []string
	}{
		{"another_key", []string{"a"}, []string{"b"}, []string{"b"}},
		{"everything", nil, []string{"b"}, []string{"b"}},
		{"the_same_key", []string{"a", "b", "a"}, []string{"b"}, []string{"b"}},
		{"one_of_everything", []string{"a"}, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &source{}
			run(t, s, fresh.Config{}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
				ctx, leave := context.WithCancel(t.Context())
				ask(t.Context(), c)
				ask(ctx, c, tt.leaves...)
				stays := ask(t.Context(), c, tt.stays...)
				leave()
				<-stays
			})
			if !slices.Equal(s.keys[1], tt.want) || (s.keys[1] == nil) != (tt.want == nil) {
				t.Errorf("told %q, want %q", s.keys[1], tt.want)
			}
		})
	}
}

func TestACallerMayReuseItsKeysOnceItIsGone(t *testing.T) {
	for _, keys := range [][]string{{"a"}, {"a", "b"}} {
		s := &source{}
		var seen, later []string
		run(t, s, fresh.Config{}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
			mine := slices.Clone(keys)
			s.play = func(context.Context, int) error {
				seen = slices.Clone(s.keys[0])
				elapse(time.Minute)
				later = s.keys[0]
				return nil
			}
			ctx, leave := context.WithCancel(t.Context())
			leaver := ask(ctx, c, mine...)
			leave()
			<-leaver
			clear(mine)
		})
		if !slices.Equal(seen, keys) || !slices.Equal(later, keys) {
			t.Errorf("told %q, and later that had become %q", seen, later)
		}
	}
}

func TestASliceOfNoKeysAsksForEverything(t *testing.T) {
	s := &source{}
	run(t, s, fresh.Config{}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		first, second := ask(t.Context(), c, []string{}...), ask(t.Context(), c, []string{}...)
		<-first
		<-second
	})
	if s.keys[0] != nil || s.keys[1] != nil {
		t.Errorf("told %q", s.keys)
	}
}

func TestALoneCallerIsOneWhateverItNames(t *testing.T) { // R81
	for _, keys := range [][]string{nil, {"a"}, {"a", "b"}} {
		s := &source{}
		run(t, s, fresh.Config{}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
			ctx, leave := context.WithCancel(t.Context())
			leaver := ask(ctx, c, keys...)
			if st := c.Stats(); st.Waiters != 1 {
				t.Errorf("one asks for %q: %+v", keys, st)
			}
			leave()
			<-leaver
			if st := c.Stats(); st.Waiters != 0 || st.Cancelled != 1 {
				t.Errorf("nobody waits: %+v", st)
			}
		})
	}
}

func TestAKeyThatNoMapCanHaveLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fresh.New(func(ctx context.Context, _ []any) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}, fresh.Config{})
		refuse := func(keys ...any) {
			t.Helper()
			defer func() {
				t.Helper()
				if p := fmt.Sprint(recover()); !strings.Contains(p, "unhashable type") {
					t.Errorf("Do of %v panicked with %v", keys, p)
				}
			}()
			_, _ = c.Do(t.Context(), keys...)
		}
		refuse([]int{1}) // would start at once
		first, leave := context.WithCancel(t.Context())
		go func() { _, _ = c.Do(first, "a") }()
		synctest.Wait()
		refuse("b", []int{1}) // would be promised a run
		second, leaveToo := context.WithCancel(t.Context())
		go func() { _, _ = c.Do(second, "b") }()
		synctest.Wait()
		refuse("c", []int{1}) // would share it
		if s := c.Stats(); s.Runs != 1 || s.Waiters != 2 {
			t.Errorf("while others wait: %+v", s)
		}
		leaveToo()
		synctest.Wait() // else the run that was promised might begin in between
		leave()
		synctest.Wait()
		if s := c.Stats(); s.Runs != 1 || s.Waiters != 0 || s.Running || s.Promised {
			t.Errorf("when all have left: %+v", s)
		}
		c.Close()
	})
}
