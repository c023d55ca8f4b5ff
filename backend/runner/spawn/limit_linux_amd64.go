package spawn

import "golang.org/x/sys/unix"

// syscallInstruction is SYSCALL.
func syscallInstruction() []byte { return []byte{0x0f, 0x05} }

// callWith returns regs changed such that the next instruction, a system call, does prlimit64(0, resource, limit, NULL).
func callWith(regs unix.PtraceRegs, resource int, limit uintptr) unix.PtraceRegs {
	regs.Rax, regs.Orig_rax = unix.SYS_PRLIMIT64, ^uint64(0)
	regs.Rdi, regs.Rsi, regs.Rdx, regs.R10 = 0, uint64(resource), uint64(limit), 0
	return regs
}

func programCounter(regs *unix.PtraceRegs) uintptr { return uintptr(regs.Rip) }

func stackPointer(regs *unix.PtraceRegs) uintptr { return uintptr(regs.Rsp) }

func returnValue(regs *unix.PtraceRegs) int64 { return int64(regs.Rax) }

func getRegs(pid int, regs *unix.PtraceRegs) error { return unix.PtraceGetRegs(pid, regs) }

func setRegs(pid int, regs *unix.PtraceRegs) error { return unix.PtraceSetRegs(pid, regs) }
