package spawn

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// denyMPTCP makes multipath TCP look unsupported to the calling thread and what it forks: Landlock knows TCP only, while a listener of the
// other kind serves plain TCP as well. Go programs ask for it first, and fall back. false: there is no filter here.
func denyMPTCP() (bool, error) {
	arch := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64, "riscv64": unix.AUDIT_ARCH_RISCV64}[runtime.GOARCH]
	if arch == 0 {
		return false, nil
	}
	const nr, archOffset, protocol = 0, 4, 32 // in struct seccomp_data; the low half of the third argument
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	unless := func(value uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: skip, K: value}
	}
	answer := func(action uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
	}
	program := []unix.SockFilter{
		load(archOffset), unless(arch, 5),
		load(nr), unless(unix.SYS_SOCKET, 3),
		load(protocol), unless(unix.IPPROTO_MPTCP, 1),
		answer(unix.SECCOMP_RET_ERRNO | uint32(unix.EPROTONOSUPPORT)),
		answer(unix.SECCOMP_RET_ALLOW),
	}
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
