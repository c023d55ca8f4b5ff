//go:build linux

package local_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ids returns the names of the sandboxes on the disk.
func ids(state string) (out []string, err error) {
	entries, err := os.ReadDir(filepath.Join(state, "sandboxes"))
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, err
}

// hostOf returns the number of the host's process.
func hostOf(state string) (int, error) {
	b, err := os.ReadFile(filepath.Join(state, "host.lock"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(b))
}

// killHost kills the host and returns when it is dead: its lock is free.
func killHost(state string) error {
	pid, err := hostOf(state)
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		return err
	}
	// Not for the lock: a call that goes on may have started the next host, which then holds it for good.
	for ended := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}; ; {
		if _, err := unix.Poll(ended, -1); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// immutableFlag is FS_IMMUTABLE_FL: not even root changes or removes the file.
const immutableFlag = 0x10

func immutable(path string, on bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return err
	}
	flags &^= immutableFlag
	if on {
		flags |= immutableFlag
	}
	return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags)
}

// mountOf returns where the host has mounted its homes.
func mountOf(state string) (string, error) {
	pid, err := hostOf(state)
	if err != nil {
		return "", err
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], "/run/keepwell/homes-") {
			return f[4], nil
		}
	}
	return "", errors.New("no homes are mounted")
}

// inMountsOf runs a command in the mount namespace of the host.
func inMountsOf(state string, argv ...string) error {
	pid, err := hostOf(state)
	if err != nil {
		return err
	}
	out, err := exec.Command("nsenter", append([]string{"-t", strconv.Itoa(pid), "-m", "--"}, argv...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v: %w: %s", argv, err, out)
	}
	return nil
}

func itoa(n int) string { return strconv.Itoa(n) }
