package spawn

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ownIPC gives the calling thread, and what it forks, shared memory, semaphores and message queues that nobody else has. They end with
// the last of them.
func ownIPC() error {
	if err := unix.Unshare(unix.CLONE_NEWIPC); err != nil {
		return fmt.Errorf("ipc of its own: %w", err)
	}
	return nil
}

// ipcKinds names the lists of what processes share without a file, and how a member is removed.
func ipcKinds() map[string]func(id int) unix.Errno {
	return map[string]func(id int) unix.Errno{
		"shm": func(id int) unix.Errno {
			_, _, errno := unix.Syscall(unix.SYS_SHMCTL, uintptr(id), unix.IPC_RMID, 0)
			return errno
		},
		"sem": func(id int) unix.Errno {
			_, _, errno := unix.Syscall6(unix.SYS_SEMCTL, uintptr(id), 0, unix.IPC_RMID, 0, 0, 0)
			return errno
		},
		"msg": func(id int) unix.Errno {
			_, _, errno := unix.Syscall(unix.SYS_MSGCTL, uintptr(id), unix.IPC_RMID, 0)
			return errno
		},
	}
}

// RemoveIPC removes the System V shared memory, semaphores and message queues that a uid has made and that its processes left behind:
// they outlive them where a sandbox has no IPC namespace of its own. Only for a uid without processes.
func RemoveIPC(uid uint32) error {
	for kind, remove := range ipcKinds() {
		list, err := os.ReadFile("/proc/sysvipc/" + kind)
		if errors.Is(err, os.ErrNotExist) { // this kernel has none
			continue
		}
		if err != nil {
			return fmt.Errorf("spawn: ipc of uid %d: %w", uid, err)
		}
		for _, id := range ipcOf(list, uid) {
			if errno := removeAs(uid, id, remove); errno != 0 && errno != unix.EINVAL && errno != unix.EIDRM {
				return fmt.Errorf("spawn: remove %s %d of uid %d: %w", kind, id, uid, errno)
			}
		}
	}
	return nil
}

// removeAs removes one on a thread that is the uid where this process may not: a root without CAP_SYS_ADMIN.
func removeAs(uid uint32, id int, remove func(id int) unix.Errno) unix.Errno {
	if errno := remove(id); errno != unix.EPERM {
		return errno
	}
	done := make(chan unix.Errno)
	onThread(func() { // ends with its one call
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			done <- errno
			return
		}
		done <- remove(id)
	})
	return <-done
}

// ipcOf returns the ids in a list of /proc/sysvipc that a uid owns or made.
func ipcOf(list []byte, uid uint32) []int {
	head, rest, _ := bytes.Cut(list, []byte("\n"))
	column := map[string]int{}
	for i, name := range bytes.Fields(head) {
		column[string(name)] = i
	}
	want := strconv.FormatUint(uint64(uid), 10)
	var out []int
	for line := range bytes.Lines(rest) {
		fields := bytes.Fields(line)
		if len(fields) < len(column) || string(fields[column["uid"]]) != want && string(fields[column["cuid"]]) != want {
			continue
		}
		if id, err := strconv.Atoi(string(fields[1])); err == nil {
			out = append(out, id)
		}
	}
	return out
}
