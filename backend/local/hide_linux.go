package local

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// hideProcesses mounts a /proc that shows a sandbox the processes of its own uid alone, and says whether it has: command lines can be
// read by everybody otherwise. Only a host whose mounts are its own does that, and only one that goes on to see all processes itself.
// Before the spawner opens /proc for the sandboxes.
func hideProcesses() bool {
	if os.Geteuid() != 0 || !ownMounts() || !seesAll() {
		return false
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("proc", "/proc", "proc", flags, "hidepid=2"); err != nil {
		return false
	}
	if hidden() {
		return true
	}
	_ = unix.Unmount("/proc", unix.MNT_DETACH) // a kernel where all mounts of it are alike
	return false
}

// ownMounts says whether this process has other mounts than the one that started it. When that cannot be told it has not.
func ownMounts() bool {
	mine, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return false
	}
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", os.Getppid()))
	return err == nil && mine != theirs
}

// seesAll says whether this process has the capability that hidepid does not hold for.
func seesAll() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_PTRACE) != 0
}

// hidden says whether the topmost /proc hides processes. Newer kernels say it by name.
func hidden() bool {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false
	}
	var last []byte
	for line := range bytes.Lines(mounts) {
		if fields := bytes.Fields(line); len(fields) > 4 && string(fields[4]) == "/proc" {
			last = line
		}
	}
	return bytes.Contains(last, []byte("hidepid=invisible")) || bytes.Contains(last, []byte("hidepid=2"))
}
