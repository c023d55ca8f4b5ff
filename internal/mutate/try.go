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
	limit              time.Duration // for one run; past it the mutant counts as killed
}

// build compiles pkg's tests with the rewritten sources laid over the real ones, and runs them once unchanged.
func build(ctx context.Context, pkg *loaded) (*binary, error) {
	scratch, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return nil, err
	}
	b := &binary{path: filepath.Join(scratch, "tests"), dir: pkg.dir, scratch: scratch, limit: time.Minute}
	b.rapid, err = testsMention(pkg.dir, `"pgregory.net/rapid"`)
	if err == nil {
		b.short, err = testsMention(pkg.dir, "testing.Short()")
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(scratch))
	}
	overlay, err := writeOverlay(scratch, pkg.sources)
	if err == nil {
		err = compile(ctx, b.path, pkg.dir, overlay)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(scratch))
	}
	start := time.Now()
	if killed, out, err := b.run(ctx, 0); err != nil || killed {
		return nil, errors.Join(fmt.Errorf("the tests fail without a mutation: %s", out), err, os.RemoveAll(scratch))
	}
	b.limit = 3*time.Since(start) + 5*time.Second
	return b, nil
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

func compile(ctx context.Context, to, dir, overlay string) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", to, ".")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile: %w\n%s", err, out)
	}
	return nil
}

// run runs the tests with one mutant on and says whether a test failed or hung.
func (b *binary) run(ctx context.Context, id int) (killed bool, out []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit+5*time.Second)
	defer cancel()
	// The limit of memory stops a mutant that allocates without end before it hurts the machine.
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", `ulimit -v 6000000; exec "$@"`, "sh",
		b.path, "-test.failfast", "-test.timeout="+b.limit.String(), "-test.count=1")
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
	if _, failed := errors.AsType[*exec.ExitError](err); failed || ctx.Err() != nil {
		return true, out, nil
	}
	return false, out, err
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
			killed, _, e := b.run(ctx, m.id)
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
