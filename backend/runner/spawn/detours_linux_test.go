package spawn_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/keepwell-go/keepwell/backend/runner/spawn"
)

// detours are system calls that lead around the confinement, with the answer that has to come instead. Arguments are such that a call
// which gets through fails in another way.
func detours() map[string]struct {
	call [4]uintptr
	want syscall.Errno
} {
	const x32, smc, keySession = 0x40000000, 256, ^uintptr(2) // KEY_SPEC_SESSION_KEYRING is -3
	return map[string]struct {
		call [4]uintptr
		want syscall.Errno
	}{
		"io_uring":                         {[4]uintptr{unix.SYS_IO_URING_SETUP, 0, 0}, unix.ENOSYS},
		"clone3":                           {[4]uintptr{unix.SYS_CLONE3, 0, 0}, unix.ENOSYS},
		"a new key":                        {[4]uintptr{unix.SYS_ADD_KEY, 0, 0, 0}, unix.ENOSYS},
		"a key by its name":                {[4]uintptr{unix.SYS_REQUEST_KEY, 0, 0, 0}, unix.ENOSYS},
		"the keys of the session":          {[4]uintptr{unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, keySession, 0}, unix.ENOSYS},
		"a user namespace":                 {[4]uintptr{unix.SYS_UNSHARE, unix.CLONE_NEWUSER | 1<<33}, unix.EPERM},
		"a child in a user namespace":      {[4]uintptr{unix.SYS_CLONE, unix.CLONE_NEWUSER | unix.CLONE_FS, 0, 0}, unix.EPERM},
		"multipath TCP":                    {[4]uintptr{unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, unix.EPROTONOSUPPORT},
		"SMC":                              {[4]uintptr{unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, smc}, unix.EPROTONOSUPPORT},
		"SMC by its family":                {[4]uintptr{unix.SYS_SOCKET, unix.AF_SMC, unix.SOCK_STREAM, 0}, unix.EAFNOSUPPORT},
		"the numbers of x32":               {[4]uintptr{x32 | unix.SYS_GETPID}, unix.ENOSYS},
		"what is asked for, TCP":           {[4]uintptr{unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP}, 0},
		"what is asked for, a unix socket": {[4]uintptr{unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM, 0}, 0},
	}
}

func tryDetours() {
	for name, d := range detours() {
		_, _, errno := syscall.RawSyscall(d.call[0], d.call[1], d.call[2], d.call[3])
		fmt.Printf("%s: %d\n", name, errno)
	}
}

func TestSystemCallsThatLeadAroundTheConfinementAreRefused(t *testing.T) {
	asEachUser(t, func(t *testing.T, s *spawn.Spawner) {
		c := confine(t, s, spawn.Limits{})
		out, _ := c.output(c.self("detours"))
		for name, d := range detours() {
			if want := fmt.Sprintf("%s: %d\n", name, d.want); !strings.Contains(out+"\n", want) {
				t.Errorf("want %q among\n%s", want, out)
			}
		}
	})
}

// thirtyTwoBit is a program for i386 that exits with 42.
func thirtyTwoBit() []byte {
	const at, size = 0x08048000, 52 + 32
	code := []byte{0xb8, 1, 0, 0, 0, 0xbb, 42, 0, 0, 0, 0xcd, 0x80} // mov eax, 1; mov ebx, 42; int 0x80
	total := uint32(size + len(code))
	b := append([]byte("\x7fELF\x01\x01\x01"), make([]byte, 9)...)
	for _, half := range []uint16{2, 3} { // an executable, for i386
		b = binary.LittleEndian.AppendUint16(b, half)
	}
	for _, word := range []uint32{1, at + size, 52, 0, 0} {
		b = binary.LittleEndian.AppendUint32(b, word)
	}
	for _, half := range []uint16{52, 32, 1, 0, 0, 0} {
		b = binary.LittleEndian.AppendUint16(b, half)
	}
	for _, word := range []uint32{1, 0, at, at, total, total, 5, 0x1000} {
		b = binary.LittleEndian.AppendUint32(b, word)
	}
	return append(b, code...)
}

// The numbers of a foreign architecture mean other system calls than those that are refused.
func TestProgramsOfForeignArchitecturesAreKilled(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("needs a second architecture to run")
	}
	c := confine(t, newSpawner(t, spawn.Config{}), spawn.Limits{})
	path := filepath.Join(c.home, "foreign")
	if err := os.WriteFile(path, thirtyTwoBit(), 0o755); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := exec.Command(path).Run(); !errors.As(err, &exit) || exit.ExitCode() != 42 {
		t.Skipf("this kernel does not run i386 programs: %v", err)
	}
	if out, code := c.output("./foreign"); code != 128+int(unix.SIGSYS) {
		t.Errorf("exit %d: %s; want SIGSYS", code, out)
	}
}

// Were the child let go when the thread that traces it dies, with its process or alone, a copy of this program would run.
func TestNoCopyOfTheProgramRunsOnWhenItDiesWhileProbing(t *testing.T) {
	forked := make(chan int)
	spawn.OnThread(func() {
		pid, err := spawn.ForkStopped()
		if err != nil {
			t.Error(err)
		}
		forked <- pid
	})
	pid := <-forked
	if pid == 0 {
		return
	}
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
	for {
		var status unix.WaitStatus
		if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != nil {
			t.Fatal(err)
		}
		if status.Stopped() { // the thread is about to die
			continue
		}
		if status.Signal() != unix.SIGKILL {
			t.Errorf("it ended with %#x; want that it is killed", status)
		}
		return
	}
}
