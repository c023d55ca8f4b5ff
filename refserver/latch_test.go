package refserver

import (
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"pgregory.net/rapid"
)

func TestALingerIsTakenOnceAndStrictlyAfterItsLimit(t *testing.T) { // R48
	c := clock.NewMock()
	l := latch{clock: c}
	c.Add(time.Hour)
	if l.takeLinger(time.Second) {
		t.Error("taken before the drain began")
	}
	l.begin()
	for _, step := range []struct {
		wait time.Duration
		want bool
	}{{0, false}, {time.Second, false}, {1, true}, {0, false}, {time.Hour, false}} {
		c.Add(step.wait)
		if l.takeLinger(0) {
			t.Error("taken without a limit")
		}
		if got := l.takeLinger(time.Second); got != step.want {
			t.Errorf("%s after the drain began: %t", c.Now().Sub(l.since), got)
		}
		if l.hasLingered() != (c.Now().Sub(l.since) > time.Second) {
			t.Errorf("%s after the drain began it has lingered: %t", c.Now().Sub(l.since), l.hasLingered())
		}
	}
}

// The same for any order of looks, drains and moments. // R48, R49
func TestALatchKeepsItsFirstMomentAndItsLingerIsTakenOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := clock.NewMock()
		l := latch{clock: c}
		limit := time.Duration(rapid.IntRange(1, 20).Draw(t, "limit"))
		var first time.Time
		taken := false
		t.Repeat(map[string]func(*rapid.T){
			"wait": func(t *rapid.T) { c.Add(time.Duration(rapid.IntRange(0, 8).Draw(t, "wait"))) },
			"drain": func(t *rapid.T) {
				if first.IsZero() {
					first = c.Now()
				}
				if got := l.begin(); !got.Equal(first) {
					t.Fatalf("it began at %s, not at %s", got, first)
				}
			},
			"take": func(t *rapid.T) {
				due := !first.IsZero() && c.Now().Sub(first) > limit
				if got := l.takeLinger(limit); got != (due && !taken) {
					t.Fatalf("due: %t, taken before: %t, taken now: %t", due, taken, got)
				}
				taken = taken || due
			},
			"": func(t *rapid.T) {
				if since, draining := l.began(); draining != !first.IsZero() || !since.Equal(first) || l.draining() != draining {
					t.Fatalf("it says %s, %t after a drain at %s", since, draining, first)
				}
			},
		})
	})
}
