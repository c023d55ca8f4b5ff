package fresh_test

import (
	"context"
	"slices"
	"strings"
	"testing"

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
