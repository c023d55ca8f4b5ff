package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// namedMutation is a change that a numbered rule asks to be noticed.
type namedMutation struct {
	rule, file string // file is relative to the root
	old, new   string // old occurs exactly once
}

func namedMutations() []namedMutation { return nil }

// tryNamed tries the named mutations of dir and returns the names of those that survived.
func tryNamed(ctx context.Context, dir string) (survived []string, err error) {
	for _, n := range namedMutations() {
		if filepath.ToSlash(filepath.Dir(n.file)) != dir {
			continue
		}
		src, err := os.ReadFile(n.file)
		if err != nil {
			return nil, err
		}
		if strings.Count(string(src), n.old) != 1 {
			return nil, fmt.Errorf("%s: the text to change for %s does not stand there exactly once", n.file, n.rule)
		}
		abs, err := filepath.Abs(n.file)
		if err != nil {
			return nil, err
		}
		pkg := &loaded{dir: filepath.Dir(abs), sources: map[string]string{abs: strings.Replace(string(src), n.old, n.new, 1)}}
		b, err := build(ctx, pkg)
		if b != nil {
			os.RemoveAll(b.scratch)
			survived = append(survived, n.rule+" in "+n.file)
		} else if !strings.Contains(err.Error(), "the tests fail without a mutation") {
			return nil, err
		}
	}
	return survived, nil
}
