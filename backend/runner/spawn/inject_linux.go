//go:build amd64 || arm64

package spawn

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// belowStack is how far under its stack pointer the child is lent memory: beyond the red zone, and aligned.
const belowStack = 256

// limitItself has a child that is stopped at its first instruction set a limit on itself: the instruction is replaced by a system call,
// which is stepped over, and everything put back. Setting limits on a process of another uid takes CAP_SYS_RESOURCE; lowering one's own
// takes nothing.
func limitItself(pid, resource int, to unix.Rlimit) error {
	var regs unix.PtraceRegs
	if err := getRegs(pid, &regs); err != nil {
		return err
	}
	value := binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, to.Cur), to.Max)
	at := (stackPointer(&regs) - belowStack) &^ 15
	undoValue, err := replace(pid, at, value)
	if err != nil {
		return err
	}
	undoCode, err := replace(pid, programCounter(&regs), syscallInstruction())
	if err != nil {
		return err
	}
	call := callWith(regs, resource, at)
	result, err := step(pid, &call)
	if err := errors.Join(err, undoCode(), undoValue(), setRegs(pid, &regs)); err != nil {
		return err
	}
	if result != 0 {
		return unix.Errno(-result)
	}
	return nil
}

// replace writes into the child and returns how to undo it.
func replace(pid int, at uintptr, data []byte) (undo func() error, err error) {
	old := make([]byte, len(data))
	if _, err := unix.PtracePeekData(pid, at, old); err != nil {
		return nil, err
	}
	write := func(b []byte) error {
		_, err := unix.PtracePokeData(pid, at, b)
		return err
	}
	return func() error { return write(old) }, write(data)
}

// step runs one instruction with regs. A signal that comes between is held back and sent again: the child has done nothing yet that
// could have told the difference.
func step(pid int, regs *unix.PtraceRegs) (result int64, err error) {
	if err := setRegs(pid, regs); err != nil {
		return 0, err
	}
	var late []unix.Signal
	for {
		if err := unix.PtraceSingleStep(pid); err != nil {
			return 0, err
		}
		sig, err := stopped(pid)
		if err != nil {
			return 0, err
		}
		if sig == unix.SIGTRAP {
			break
		}
		late = append(late, sig)
	}
	for _, sig := range late {
		_ = unix.Kill(pid, sig)
	}
	if err := getRegs(pid, regs); err != nil {
		return 0, err
	}
	return returnValue(regs), nil
}
