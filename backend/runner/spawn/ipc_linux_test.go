package spawn_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/keepwell-go/keepwell/backend/runner/spawn"
)

// makeIPC makes one of each that outlives its maker.
func makeIPC() {
	const private, perm = 0, 0o666
	_, _, shm := syscall.Syscall(unix.SYS_SHMGET, private, 4096, unix.IPC_CREAT|perm)
	_, _, sem := syscall.Syscall(unix.SYS_SEMGET, private, 1, unix.IPC_CREAT|perm)
	_, _, msg := syscall.Syscall(unix.SYS_MSGGET, private, unix.IPC_CREAT|perm, 0)
	fmt.Println(int(shm), int(sem), int(msg))
}

// ipcOf returns the lines of a list of all there is that name a uid.
func ipcOf(list string, uid uint32) []string {
	var out []string
	for line := range strings.Lines(list) {
		for _, field := range strings.Fields(line) {
			if field == strconv.Itoa(int(uid)) {
				out = append(out, line)
				break
			}
		}
	}
	return out
}

func allIPC(t *testing.T) string {
	t.Helper()
	var all string
	for _, kind := range []string{"shm", "sem", "msg"} {
		b, err := os.ReadFile("/proc/sysvipc/" + kind)
		if err != nil {
			t.Skip(err)
		}
		all += string(b)
	}
	return all
}

func TestSharedMemoryAndItsKindStayInASandbox(t *testing.T) {
	s := newSpawner(t, spawn.Config{})
	if !s.Abilities().OwnIPC {
		t.Skip("needs root with CAP_SYS_ADMIN")
	}
	const list = "cat /proc/sysvipc/shm /proc/sysvipc/sem /proc/sysvipc/msg"
	c, other := confine(t, s, spawn.Limits{}), confine(t, s, spawn.Limits{})
	if out, _ := c.output(c.self("ipc")); out != "0 0 0" {
		t.Fatalf("errors %s; want none", out)
	}
	mine, _ := c.output(list)
	if len(ipcOf(mine, c.uid)) != 3 {
		t.Errorf("the next process of the sandbox sees\n%s", mine)
	}
	others, _ := other.output(list)
	for who, seen := range map[string]string{"another sandbox": others, "the server": allIPC(t)} {
		if got := ipcOf(seen, c.uid); len(got) != 0 {
			t.Errorf("%s sees %q", who, got)
		}
	}
}

// Where a sandbox shares the IPC namespace, what it leaves behind would be the next owner's of its uid.
func TestWhatAUIDLeftBehindIsRemoved(t *testing.T) {
	needRoot(t)
	uid := sandbox(t, spawn.Limits{}).UID
	for _, u := range []uint32{uid, uid + 1} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{envInside + "=ipc"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: u, Gid: u}}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "0 0 0\n" {
			t.Fatalf("%v: %s", err, out)
		}
	}
	t.Cleanup(func() { _ = spawn.RemoveIPC(uid + 1) })
	if err := spawn.RemoveIPC(uid); err != nil {
		t.Error(err)
	}
	left := allIPC(t)
	if mine, others := ipcOf(left, uid), ipcOf(left, uid+1); len(mine) != 0 || len(others) != 3 {
		t.Errorf("left are %q, and of another %q; want none and 3", mine, others)
	}
}
