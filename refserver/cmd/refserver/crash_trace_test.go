//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A trace counts the steps of a process and holds the process at one of them. A step is a system call that others can see: a
// file made, renamed or removed, a message, a process begun or killed. What the Go runtime does for itself is none, nor is what only
// looks.
//
// The tracer is a process of its own, since what it traces goes on by itself when it ends, whatever the test was doing.
type trace struct {
	cmd   *exec.Cmd
	stdin io.Closer
	lines chan string // each line that the tracer prints; closed when it has ended
}

// traceVariable tells the test binary that it is a tracer: "PID STEP before|after".
const traceVariable = "CRASH_TRACE"

// startTrace returns once every system call of pid is seen. Step 0 is none: it only counts.
func startTrace(t testing.TB, pid, step int, when string) *trace {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tr := &trace{cmd: exec.Command(self, "-test.run=^TestTheTracerItself$", "-test.v=false"), lines: make(chan string, 4)}
	tr.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s", traceVariable, pid, step, when))
	tr.cmd.Stderr = os.Stderr
	stdin, err := tr.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	tr.stdin = stdin
	out, err := tr.cmd.StdoutPipe()
	if err == nil {
		err = tr.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.cmd.Process.Kill() }) // a test that failed meanwhile would hold the process for good
	go func() {                                     // ends with the tracer
		defer close(tr.lines)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			tr.lines <- sc.Text()
		}
	}()
	if got := <-tr.lines; got != "ready" {
		t.Fatalf("the tracer of process %d says %q", pid, got)
	}
	return tr
}

// end lets the process go on and returns the steps that were seen.
func (tr *trace) end() (steps []string) {
	_ = tr.stdin.Close()
	for line := range tr.lines {
		if rest, ok := strings.CutPrefix(line, "steps"); ok {
			steps = strings.Fields(rest)
		}
	}
	_ = tr.cmd.Wait()
	return steps
}

// TestTheTracerItself is no test: it is what the process of a trace does.
func TestTheTracerItself(t *testing.T) {
	spec := os.Getenv(traceVariable)
	if spec == "" {
		t.Skip("only in the process of a tracer")
	}
	var tc tracer
	var when string
	if _, err := fmt.Sscan(spec, &tc.pid, &tc.at, &when); err != nil {
		t.Fatal(err)
	}
	tc.after = when == "after"
	runtime.LockOSThread()
	if err := tc.seize(); err != nil {
		fmt.Println("cannot trace:", err)
		os.Exit(1)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		fmt.Println("steps", strings.Join(*tc.steps.Load(), " "))
		os.Exit(0) // what is traced goes on
	}()
	tc.follow()
	select {} // until stdin ends
}

type tracer struct {
	pid, at int
	after   bool                     // hold when the step is done, not before it
	done    int                      // the thread whose step is the one, 0: none yet
	waiting map[int]bool             // threads that were attached to and have not stopped yet
	steps   atomic.Pointer[[]string] // replaced, never changed
}

// seize attaches to every thread there is; those to come are attached by the kernel.
func (tc *tracer) seize() error {
	tc.steps.Store(new([]string))
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE
	tc.waiting = map[int]bool{}
	for before := -1; before != len(tc.waiting); {
		before = len(tc.waiting)
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", tc.pid))
		if err != nil {
			return err
		}
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			if err != nil || tc.waiting[tid] {
				continue
			}
			err = ptrace(unix.PTRACE_SEIZE, tid, 0, options)
			switch {
			case err == nil:
				tc.waiting[tid] = true
				_ = ptrace(unix.PTRACE_INTERRUPT, tid, 0, 0) // it may have ended
			case tid == tc.pid:
				return err
			} // otherwise it has ended, or was begun by a thread that is traced
		}
	}
	return nil
}

// follow lets the process run from one system call to the next until it is at its step or has ended.
func (tc *tracer) follow() {
	for {
		var st syscall.WaitStatus
		tid, err := syscall.Wait4(-1, &st, syscall.WALL, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return // all threads have ended
		}
		if tc.waiting[tid] {
			if delete(tc.waiting, tid); len(tc.waiting) == 0 {
				fmt.Println("ready")
			}
		}
		if !st.Stopped() {
			continue
		}
		sig := int(st.StopSignal())
		switch {
		case sig == int(syscall.SIGTRAP)|0x80:
			if tc.step(tid) {
				return
			}
			sig = 0
		case int(st)>>16 != 0:
			sig = 0 // a thread that begins, or that was attached to
		}
		_ = ptrace(unix.PTRACE_SYSCALL, tid, 0, sig) // it may have been killed
	}
}

// step notes the system call at which a thread has stopped; true when it is the one.
func (tc *tracer) step(tid int) bool {
	var info syscallInfo
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	switch {
	case errno != 0:
		return false
	case info.op == unix.PTRACE_SYSCALL_INFO_EXIT && tid == tc.done:
		fmt.Println("hit", (*tc.steps.Load())[tc.at-1])
		return true
	case info.op != unix.PTRACE_SYSCALL_INFO_ENTRY || tc.done != 0 || len(tc.waiting) > 0: // what is counted has not begun
		return false
	}
	name := stepName(info.nr, info.args)
	if name == "" {
		return false
	}
	steps := append(slices.Clone(*tc.steps.Load()), name)
	tc.steps.Store(&steps)
	if len(steps) != tc.at {
		return false
	}
	if tc.after {
		tc.done = tid
		return false
	}
	fmt.Println("hit", name)
	return true
}

// syscallInfo is what the kernel says of a system call: struct ptrace_syscall_info.
type syscallInfo struct {
	op    uint8
	_     [7]byte
	_     [2]uint64
	nr    uint64
	args  [6]uint64
	spare [4]uint64
}

func ptrace(request, tid, addr, data int) error {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, uintptr(request), uintptr(tid), uintptr(addr), uintptr(data), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// stepName returns what a system call is called when it is a step, or "".
func stepName(nr uint64, args [6]uint64) string {
	const changes = unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC
	switch nr {
	case unix.SYS_OPENAT:
		if args[2]&changes == 0 {
			return ""
		}
		return "open"
	case unix.SYS_WRITE:
		if args[2] == 8 { // the runtime wakes its own poller
			return ""
		}
		return "write"
	case unix.SYS_KILL, unix.SYS_PIDFD_SEND_SIGNAL:
		if args[1] == 0 { // it only asks
			return ""
		}
		return "kill"
	}
	return alwaysSteps()[nr]
}

// alwaysSteps names the system calls that are always a step.
func alwaysSteps() map[uint64]string {
	return map[uint64]string{
		unix.SYS_MKDIRAT: "mkdir", unix.SYS_UNLINKAT: "unlink", unix.SYS_RENAMEAT: "rename", unix.SYS_RENAMEAT2: "rename", unix.SYS_LINKAT: "link",
		unix.SYS_FCHOWNAT: "chown", unix.SYS_FCHOWN: "chown", unix.SYS_FCHMODAT: "chmod", unix.SYS_FCHMOD: "chmod", unix.SYS_FTRUNCATE: "truncate",
		unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fsync", unix.SYS_FLOCK: "flock", unix.SYS_PWRITE64: "write", unix.SYS_WRITEV: "write", unix.SYS_SENDMSG: "send", unix.SYS_SENDTO: "send",
		unix.SYS_CONNECT: "connect", unix.SYS_ACCEPT4: "accept", unix.SYS_BIND: "bind", unix.SYS_PIPE2: "pipe",
		unix.SYS_CLONE: "clone", unix.SYS_CLONE3: "clone",
		unix.SYS_MOUNT: "mount", unix.SYS_UMOUNT2: "unmount", unix.SYS_PRLIMIT64: "limit",
	}
}
