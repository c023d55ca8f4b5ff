package spawn

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	ipprotoSMC = 256     // TCP under another name: what Landlock does not know is bound all the same
	x32Bit     = 1 << 30 // in the number of a system call: the x32 one, which would pass the comparisons below. No other number is as high

	// in struct seccomp_data; the low halves of the arguments
	numberAt, archAt, firstArgAt, thirdArgAt = 0, 4, 16, 32
)

// denyDetours takes system calls from the calling thread and what it forks that lead around the rest of the confinement. False: there
// is no filter here.
//
// Landlock knows TCP only, while a listener of multipath TCP or SMC serves plain TCP as well; Go programs ask for the first one, and fall
// back. An io_uring makes sockets unseen. A user namespace gives capabilities, and with them most of the kernel to attack. clone3 has
// its flags where no filter sees them: libraries fall back to clone. Keys of the kernel come with the session that the runner was
// started in, for all sandboxes to read and to add to, and those of a uid outlive its processes.
func denyDetours() (bool, error) {
	arch := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64, "riscv64": unix.AUDIT_ARCH_RISCV64}[runtime.GOARCH]
	if arch == 0 {
		return false, nil
	}
	program := detours(arch)
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
	switch err {
	case nil:
		return true, nil
	case unix.EINVAL, unix.ENOSYS:
		return false, nil
	}
	return false, fmt.Errorf("filter system calls: %w", err)
}

func detours(arch uint32) []unix.SockFilter {
	f := &filter{}
	f.load(archAt)
	f.unless(unix.BPF_JEQ, arch, unix.SECCOMP_RET_KILL_PROCESS) // its numbers mean other calls
	f.load(numberAt)
	f.when(unix.BPF_JGE, x32Bit, refuse(unix.ENOSYS))
	f.when(unix.BPF_JEQ, unix.SYS_IO_URING_SETUP, refuse(unix.ENOSYS))
	f.when(unix.BPF_JEQ, unix.SYS_CLONE3, refuse(unix.ENOSYS))
	for _, number := range []uint32{unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL} {
		f.when(unix.BPF_JEQ, number, refuse(unix.ENOSYS))
	}
	f.calls(unix.SYS_UNSHARE, firstArgAt, test{unix.BPF_JSET, unix.CLONE_NEWUSER, refuse(unix.EPERM)})
	f.calls(unix.SYS_CLONE, firstArgAt, test{unix.BPF_JSET, unix.CLONE_NEWUSER, refuse(unix.EPERM)})
	f.calls(unix.SYS_SOCKET, thirdArgAt, test{unix.BPF_JEQ, unix.IPPROTO_MPTCP, refuse(unix.EPROTONOSUPPORT)},
		test{unix.BPF_JEQ, ipprotoSMC, refuse(unix.EPROTONOSUPPORT)})
	f.calls(unix.SYS_SOCKET, firstArgAt, test{unix.BPF_JEQ, unix.AF_SMC, refuse(unix.EAFNOSUPPORT)})
	return append(f.program, answer(unix.SECCOMP_RET_ALLOW))
}

// filter is a program for the kernel being written.
type filter struct{ program []unix.SockFilter }

// test answers with an action when an argument compares to a value.
type test struct {
	compare uint16
	value   uint32
	action  uint32
}

func refuse(errno unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(errno) }

func answer(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}

func (f *filter) load(at uint32) {
	f.program = append(f.program, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at})
}

// when answers if what was loaded compares to value.
func (f *filter) when(compare uint16, value, action uint32) {
	f.program = append(f.program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | compare, Jf: 1, K: value}, answer(action))
}

// unless answers if what was loaded does not compare to value.
func (f *filter) unless(compare uint16, value, action uint32) {
	f.program = append(f.program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | compare, Jt: 1, K: value}, answer(action))
}

// calls puts an argument of one system call to tests. The number is loaded before and after.
func (f *filter) calls(number, argument uint32, tests ...test) {
	skip := uint8(2*len(tests) + 1)
	f.program = append(f.program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | unix.BPF_JEQ, Jf: skip, K: number})
	f.load(argument)
	for _, t := range tests {
		f.when(t.compare, t.value, t.action)
	}
	f.load(numberAt) // both ways lead here, so that the next comparison is with the number
}
