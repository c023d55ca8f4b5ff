package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// namedMutation is a change that a numbered rule asks to be noticed.
type namedMutation struct {
	rule, file string // file is relative to the root
	old, new   string // old occurs exactly once
}

func namedMutations() []namedMutation {
	return []namedMutation{
		{
			rule: "R3 without the guard of a miss that drains", file: "registry/resolve.go",
			old: `case wait == nil && rec == nil && r.cfg.Draining():`,
			new: `case false:`,
		},
		{
			rule: "R20 with the duplicate judged after the quotas", file: "quota/quota.go",
			old: `
	if s, ok := l.slots[k]; ok {
		l.stats.Duplicates++`,
			new: `
	for i, ch := range charges {
		if used := l.used[i][ch.key]; ch.cost > ch.max-used {
			return Token[K, C]{}, &ExceededError{Limit: l.limits[i].Name, Key: ch.key, Max: ch.max, Used: used, Want: ch.cost}
		}
	}
	if s, ok := l.slots[k]; ok {
		l.stats.Duplicates++`,
		},
		{
			rule: "promise with the keys collected when it was made", file: "registry/fresh/run.go",
			old: `c.next.add(keys)`,
			new: `c.next.waiters++`,
		},
		{
			rule: "promise that can be joined after its start", file: "registry/fresh/run.go",
			old: `
		c.next = nil
		c.startLocked(r, now)`,
			new: `
		c.startLocked(r, now)
		c.mu.Unlock() // and then the work begins, before the flip
		time.Sleep(1)
		c.mu.Lock()
		c.next = nil`,
		},
	}
}

func (n namedMutation) String() string { return n.rule + ", in " + n.file }

// tryNamed tries those of all that change dir and have only in their name, and returns how many and which of them survived.
func tryNamed(ctx context.Context, all []namedMutation, dir, only string, limit time.Duration) (tried int, survived []string, err error) {
	for _, n := range all {
		if path.Dir(n.file) != dir || !strings.Contains(n.String(), only) {
			continue
		}
		tried++
		killed, err := n.kills(ctx, limit)
		if err != nil {
			return 0, nil, err
		}
		if !killed {
			survived = append(survived, n.String())
		}
	}
	return tried, survived, nil
}

// kills reports whether a test of the package fails for n. The tests are known to pass without it.
func (n namedMutation) kills(ctx context.Context, limit time.Duration) (bool, error) {
	file, err := filepath.Abs(n.file)
	if err != nil {
		return false, err
	}
	src, err := os.ReadFile(file)
	if err != nil {
		return false, err
	}
	if strings.Count(string(src), n.old) != 1 {
		return false, fmt.Errorf("%s: the text to change does not stand there exactly once", n)
	}
	changed := map[string]string{file: strings.Replace(string(src), n.old, n.new, 1)}
	b, err := compileTests(ctx, &loaded{dir: filepath.Dir(file), sources: changed})
	if err != nil {
		return false, fmt.Errorf("%s: %w", n, err)
	}
	defer os.RemoveAll(b.scratch)
	end, _, err := b.run(ctx, 0, limit)
	return end != passed, err
}
