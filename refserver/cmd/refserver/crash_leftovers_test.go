//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clear destroys all sandboxes there are.
func (w *crashWorld) clear(ctx context.Context) error {
	for _, query := range []url.Values{{"fresh": {"1"}}, {"state": {"stopped"}}} {
		list, err := w.api.List(ctx, query)
		if err != nil {
			return err
		}
		for _, sb := range list {
			if _, err := w.api.Delete(ctx, sb.ID, false); err != nil {
				return fmt.Errorf("destroy %s: %w", sb.ID, err)
			}
		}
		if list, err = w.api.List(ctx, query); err != nil || len(list) > 0 {
			return fmt.Errorf("after all was destroyed there is %+v: %w", list, err)
		}
	}
	return nil
}

// survivors returns what is there after all sandboxes were destroyed, and should not be. What is on its way out has a moment for that: a
// runner that found another one in its place, or a child that has not executed its command yet.
func (w *crashWorld) survivors() (found []string) {
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for range 100 {
		if found = w.surviving(); len(found) == 0 {
			return nil
		}
		<-again.C
	}
	return found
}

func (w *crashWorld) surviving() (found []string) {
	for _, p := range w.strays() {
		found = append(found, p.String())
	}
	if runners := w.runners(); len(runners) != 1 || runners[0].pid != w.runner() {
		found = append(found, fmt.Sprintf("runners: %v", runners))
	}
	own := strings.TrimPrefix(w.server.base, "http://")
	return append(found, w.files("host.sock", filepath.Join("servers", own))...)
}

// files returns the files of the state directory, but for those that are there as long as it is, and those named.
func (w *crashWorld) files(but ...string) (found []string) {
	stay := append(but, ".", "sandboxes", "servers", "token", "key", "host.key", "host.lock", "host.start", "host.log", "host.log.old",
		"bindings.db", "bindings.db-wal", "bindings.db-shm")
	_ = filepath.WalkDir(w.state(), func(path string, _ os.DirEntry, err error) error {
		rel, _ := filepath.Rel(w.state(), path)
		if err != nil || !slices.Contains(stay, rel) {
			found = append(found, fmt.Sprintf("file %s %v", path, err))
		}
		return nil
	})
	return found
}

// close ends the server and, by the command, the runner, and returns what of them is left on the machine.
func (w *crashWorld) close() (found []string, err error) {
	if code := w.server.end(syscall.SIGTERM); code != exitDone {
		err = fmt.Errorf("the server ended with %d: %s", code, w.server.stderr)
	}
	if out, code := w.run("down"); code != exitDone {
		err = errors.Join(err, fmt.Errorf("down ended with %d: %s", code, out))
	}
	for _, p := range append(w.strays(), w.runners()...) {
		found = append(found, p.String())
	}
	found = append(found, w.files()...)
	if at := "/run/keepwell/homes-" + w.mark(); exists(at) {
		found = append(found, "mount point "+at)
	}
	if mounts, _ := os.ReadFile("/proc/self/mountinfo"); strings.Contains(string(mounts), w.mark()) {
		found = append(found, "a mount of "+w.mark())
	}
	for block := range w.blocks {
		if lock := filepath.Join("/run/keepwell/uids", strconv.Itoa(int(block))); w.holds(lock) {
			found = append(found, "the lock "+lock)
		}
	}
	return found, err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// holds says whether a runner of this state directory has a lock; any other may.
func (w *crashWorld) holds(lock string) bool {
	for _, p := range w.runners() {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.pid))
		for _, fd := range fds {
			if to, _ := os.Readlink(fd); to == lock {
				return true
			}
		}
	}
	return false
}
