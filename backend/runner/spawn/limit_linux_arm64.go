package spawn

import "golang.org/x/sys/unix"

const generalRegisters = 1 // NT_PRSTATUS

// syscallInstruction is SVC #0.
func syscallInstruction() []byte { return []byte{0x01, 0x00, 0x00, 0xd4} }

// callWith returns regs changed such that the next instruction, a system call, does prlimit64(0, resource, limit, NULL).
func callWith(regs unix.PtraceRegs, resource int, limit uintptr) unix.PtraceRegs {
	regs.Regs[8] = unix.SYS_PRLIMIT64
	regs.Regs[0], regs.Regs[1], regs.Regs[2], regs.Regs[3] = 0, uint64(resource), uint64(limit), 0
	return regs
}

func programCounter(regs *unix.PtraceRegs) uintptr { return uintptr(regs.Pc) }

func stackPointer(regs *unix.PtraceRegs) uintptr { return uintptr(regs.Sp) }

func returnValue(regs *unix.PtraceRegs) int64 { return int64(regs.Regs[0]) }

func getRegs(pid int, regs *unix.PtraceRegs) error {
	return unix.PtraceGetRegSetArm64(pid, generalRegisters, (*unix.PtraceRegsArm64)(regs))
}

func setRegs(pid int, regs *unix.PtraceRegs) error {
	return unix.PtraceSetRegSetArm64(pid, generalRegisters, (*unix.PtraceRegsArm64)(regs))
}
