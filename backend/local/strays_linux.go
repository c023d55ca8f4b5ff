package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// markVariable is what package spawn puts into the environment of every process, followed by the sandbox's name.
const markVariable = "KEEPWELL_SANDBOX="

// strayBudget bounds how long a new host waits for what a former one left behind to die.
const strayBudget = 10 * time.Second

// eachProcess calls f with the number and the real uid of every process of the machine.
func eachProcess(f func(pid int, uid uint32)) error {
	d, err := os.Open("/proc")
	if err != nil {
		return fmt.Errorf("local: %w", err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("local: %w", err)
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join("/proc", name, "status"))
		if err != nil {
			continue // it has ended
		}
		if uid, ok := realUID(b); ok {
			f(pid, uid)
		}
	}
	return nil
}

func realUID(status []byte) (uint32, bool) {
	_, rest, found := bytes.Cut(status, []byte("\nUid:"))
	fields := bytes.Fields(rest)
	if !found || len(fields) == 0 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(fields[0]), 10, 32)
	return uint32(n), err == nil
}

func livingUIDs() (map[uint32]bool, error) {
	out := make(map[uint32]bool)
	return out, eachProcess(func(_ int, uid uint32) { out[uid] = true })
}

// killStrays kills the processes that a former host left running, until none is left: those of our uids, and those that bear
// the mark of this state directory. An error names one that lives.
func killStrays(ctx context.Context, log *zap.Logger, mark string, uids map[uint32]bool) error {
	ctx, cancel := context.WithTimeout(ctx, strayBudget)
	defer cancel()
	killed := make(map[int]bool)
	for {
		left := 0
		err := eachProcess(func(pid int, uid uint32) {
			if pid != os.Getpid() && (uids[uid] || marked(pid, mark)) && !zombie(pid) {
				left = pid
				killed[pid] = true
				_ = unix.Kill(pid, unix.SIGKILL) // the next round sees whether it worked
			}
		})
		if err != nil {
			return err
		}
		if left == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("local: process %d, which a former host runner left behind, cannot be killed", left)
		case <-time.After(5 * time.Millisecond):
		}
	}
	if len(killed) > 0 {
		log.Warn("killed what a former host runner left running", zap.Int("processes", len(killed)))
	}
	return nil
}

// marked says whether the environment of a process bears the mark. What has cleaned its environment is known by its uid alone.
func marked(pid int, mark string) bool {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return false
	}
	return bytes.Contains(append([]byte{0}, b...), []byte("\x00"+markVariable+mark))
}

// zombie says whether a process has died and only waits for its parent.
func zombie(pid int) bool {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	i := bytes.LastIndexByte(b, ')')
	return i >= 0 && len(b) > i+2 && (b[i+2] == 'Z' || b[i+2] == 'X')
}
