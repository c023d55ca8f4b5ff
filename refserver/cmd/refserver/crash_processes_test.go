//go:build linux

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// process is one of the machine's.
type process struct {
	pid  int
	uid  uint32
	args string
}

func (p process) String() string {
	return fmt.Sprintf("process %d of uid %d: %s", p.pid, p.uid, p.args)
}

// mark is what the processes of this state directory's sandboxes bear in their environment.
func (w *crashWorld) mark() string {
	sum := sha256.Sum256([]byte(w.state()))
	return hex.EncodeToString(sum[:6])
}

// strays returns the living processes that belong to a sandbox of this world, by their uid or their mark.
func (w *crashWorld) strays() []process {
	return processes(func(pid int, uid uint32) bool {
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // it may have ended
		return w.blocks[blockOf(uid)] || bytes.Contains(environ, []byte("KEEPWELL_SANDBOX="+w.mark()))
	})
}

// runners returns the living processes that host the sandboxes of this state directory.
func (w *crashWorld) runners() []process {
	host := []byte("\x00runner\x00--host\x00" + w.state() + "\x00")
	return processes(func(pid int, _ uint32) bool {
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have ended
		return bytes.Contains(args, host)
	})
}

// processes returns the living processes of the machine that match.
func processes(match func(pid int, uid uint32) bool) (found []process) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		status, _ := os.ReadFile(filepath.Join(dir, "status"))
		_, rest, ok := bytes.Cut(status, []byte("\nUid:\t"))
		if !ok {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		uid, _ := strconv.ParseUint(string(bytes.Fields(rest)[0]), 10, 32)
		if match(pid, uint32(uid)) && alive(pid) {
			args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
			found = append(found, process{pid, uint32(uid), strings.TrimSpace(strings.ReplaceAll(string(args), "\x00", " "))})
		}
	}
	return found
}

// alive says whether any thread of a process has not died: as long as one has not, its files are open.
func alive(pid int) bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	return slices.ContainsFunc(stats, func(path string) bool {
		s := procState(path)
		return s != 0 && s != 'Z' && s != 'X'
	})
}

// procState returns the letter that the kernel has for what a process or thread does, 0 where there is none.
func procState(path string) byte {
	stat, _ := os.ReadFile(path) // it may have ended
	i := bytes.LastIndex(stat, []byte(") "))
	if i < 0 {
		return 0
	}
	return stat[i+2]
}

// blockOf returns the first uid of the block that uid is of, or 0: a block is what one runner takes for its sandboxes.
func blockOf(uid uint32) uint32 {
	switch {
	case uid >= 1_879_048_192:
		return uid &^ 0xffff
	case uid >= 20_000 && uid < 60_000:
		return uid / 1000 * 1000
	}
	return 0
}
