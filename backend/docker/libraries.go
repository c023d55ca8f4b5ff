package docker

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"strings"
	"time"
)

// listTime bounds how long a loader takes to say what a program needs, which is no time at all.
const listTime = 10 * time.Second

// CheckStatic returns an error unless the file is a Linux program that needs nothing of the image it runs in.
func CheckStatic(path string) error {
	loader, err := loaderOf(path)
	if err == nil && loader != "" {
		err = fmt.Errorf("docker: %s needs libraries that an image may lack; build it with CGO_ENABLED=0", path)
	}
	return err
}

// loaderOf returns the path of the loader that a Linux program names, "" for a static one.
func loaderOf(path string) (string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("docker: %s is no Linux program: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			name, err := io.ReadAll(io.LimitReader(p.Open(), 4<<10))
			return string(bytes.TrimRight(name, "\x00")), err
		}
	}
	return "", nil
}

// libraries returns the loader of a program and whatever this loader would give it here, by the names that the program asks for. With
// these beside it the program runs in any image. A static one needs none.
func libraries(program string) (loader string, libs []file, err error) {
	loader, err = loaderOf(program)
	if loader == "" || err != nil {
		return "", nil, err
	}
	list, err := askLoader(loader, program)
	if err != nil {
		return "", nil, fmt.Errorf("docker: %s needs libraries that an image may lack, and they cannot be taken along; build it with CGO_ENABLED=0: %w", program, err)
	}
	paths := map[string]string{path.Base(loader): loader}
	for line := range strings.Lines(list) { // "name => path (address)"; what has no path is the kernel's, or the loader itself
		if name, rest, ok := strings.Cut(strings.TrimSpace(line), " => "); ok {
			at, _, _ := strings.Cut(rest, " (")
			paths[path.Base(name)] = at
		}
	}
	for name, at := range paths {
		data, rerr := os.ReadFile(at)
		libs, err = append(libs, file{name, data}), errors.Join(err, rerr)
	}
	return path.Base(loader), libs, err
}

// askLoader lets the loader say which libraries it would load. The program is handed over open, since its path may mean another
// one to the loader, as /proc/self/exe does. It is not run.
func askLoader(loader, program string) (string, error) {
	f, err := os.Open(program)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), listTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, loader, "--list", "/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{f}
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s --list: %w", loader, err)
	}
	return string(out), nil
}
