package runner

import (
	"os"

	"golang.org/x/sys/unix"
)

// pipeSize is what the kernel is asked to buffer, so that a fast writer and the reader here take fewer turns.
const pipeSize = 256 << 10

// newPipe returns a pipe of which only the server's end, read or write, does not block: the other end is a process's, and programs do
// not expect theirs to fail with EAGAIN.
func newPipe(serverReads bool) (server, process *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	ours, theirs := fds[1], fds[0]
	if serverReads {
		ours, theirs = theirs, ours
		_, _ = unix.FcntlInt(uintptr(ours), unix.F_SETPIPE_SZ, pipeSize) // over the user's limit it keeps its size
	}
	if err := unix.SetNonblock(ours, true); err != nil {
		_, _ = unix.Close(ours), unix.Close(theirs)
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(ours), "pipe"), os.NewFile(uintptr(theirs), "pipe"), nil
}
