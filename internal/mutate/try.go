package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"
)

// binary is the test binary of a package with all mutants in it.
type binary struct {
	path, dir, scratch string
	rapid              bool          // the tests have rapid's flags
	short              bool          // the tests know -short: what they skip can only add to what is noticed
	limit              time.Duration // for one run
}

// build compiles pkg's tests and runs them once without a mutation, to see that they pass and how long they take.
func build(ctx context.Context, pkg *loaded) (*binary, error) {
	b, err := compileTests(ctx, pkg)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if end, out, err := b.run(ctx, 0, b.limit); err != nil || end != passed {
		return nil, errors.Join(fmt.Errorf("the tests fail without a mutation: %s", out), err, os.RemoveAll(b.scratch))
	}
	b.limit = 3*time.Since(start) + 5*time.Second
	return b, nil
}

// compileTests compiles pkg's tests with the rewritten sources laid over the real ones.
func compileTests(ctx context.Context, pkg *loaded) (*binary, error) {
	scratch, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return nil, err
	}
	b := &binary{path: filepath.Join(scratch, "tests"), dir: pkg.dir, scratch: scratch, limit: time.Minute}
	if err := b.compile(ctx, pkg.sources); err != nil {
		return nil, errors.Join(err, os.RemoveAll(scratch))
	}
	return b, nil
}

func (b *binary) compile(ctx context.Context, sources map[string]string) (err error) {
	if b.rapid, err = testsMention(b.dir, `"pgregory.net/rapid"`); err != nil {
		return err
	}
	if b.short, err = testsMention(b.dir, "testing.Short()"); err != nil {
		return err
	}
	overlay, err := writeOverlay(b.scratch, sources)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", b.path, ".")
	cmd.Dir = b.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile: %w\n%s", err, out)
	}
	return nil
}

func testsMention(dir, text string) (bool, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	for _, path := range paths {
		src, err := os.ReadFile(path)
		if err != nil {
			return false, err
		}
		if bytes.Contains(src, []byte(text)) {
			return true, nil
		}
	}
	return false, err
}

func writeOverlay(scratch string, sources map[string]string) (string, error) {
	replace := map[string]string{}
	for path, text := range sources {
		to := filepath.Join(scratch, strconv.Itoa(len(replace))+".go")
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[path] = to
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(scratch, "overlay.json")
	return path, os.WriteFile(path, b, 0o600)
}

// ending is how a run of the tests ended.
type ending int

const (
	passed ending = iota
	failed
	hung // was not over at its limit
)

// run runs the tests with one mutant on.
func (b *binary) run(ctx context.Context, id int, limit time.Duration) (end ending, out []byte, err error) {
	bounded, cancel := context.WithTimeout(ctx, limit+5*time.Second)
	defer cancel()
	// The limit of memory stops a mutant that allocates without end before it hurts the machine.
	cmd := exec.CommandContext(bounded, "/bin/sh", "-c", `ulimit -v 6000000; exec "$@"`, "sh",
		b.path, "-test.failfast", "-test.timeout="+limit.String(), "-test.count=1")
	if b.rapid {
		cmd.Args = append(cmd.Args, "-rapid.nofailfile")
	}
	if b.short {
		cmd.Args = append(cmd.Args, "-test.short")
	}
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), "KEEPWELL_MUTANT="+strconv.Itoa(id))
	cmd.WaitDelay = time.Second
	out, err = cmd.CombinedOutput()
	_, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case ctx.Err() != nil:
		return hung, out, ctx.Err()
	case bounded.Err() != nil || bytes.Contains(out, []byte("panic: test timed out after")):
		return hung, out, nil
	case exited:
		return failed, out, nil
	}
	return passed, out, err
}

// kills reports whether a test fails or hangs for the mutant. A busy machine is slow as well, so a run that was not over
// at its limit counts only if one without a mutation then is; otherwise both have twice the time.
func (b *binary) kills(ctx context.Context, m mutant) (bool, error) {
	for limit := b.limit; ; limit *= 2 {
		end, _, err := b.run(ctx, m.id, limit)
		if err != nil || end != hung {
			return end == failed, err
		}
		end, out, err := b.run(ctx, 0, limit)
		switch {
		case err != nil || end == passed:
			return true, err
		case end == failed:
			return false, fmt.Errorf("the tests fail without a mutation, now and then: %s", out)
		}
	}
}

// try runs each mutant, jobs at a time, and returns those that survived.
func (b *binary) try(ctx context.Context, mutants []mutant, jobs int) (survivors []mutant, err error) {
	var mu sync.Mutex // guards survivors and err
	var wg sync.WaitGroup
	slots := make(chan struct{}, jobs)
	for _, m := range mutants {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			killed, e := b.kills(ctx, m)
			mu.Lock()
			defer mu.Unlock()
			err = errors.Join(err, e)
			if !killed {
				survivors = append(survivors, m)
			}
		})
	}
	wg.Wait()
	slices.SortFunc(survivors, func(x, y mutant) int { return x.id - y.id })
	return survivors, errors.Join(err, ctx.Err())
}
