package runner

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// pipeSize is what the kernel is asked to buffer for a process that writes much, so that it and the reader here take fewer turns.
const pipeSize = 256 << 10

// growPipe asks for pipeSize. Over the limit of the user the pipe keeps its size.
func growPipe(end syscall.RawConn) {
	_ = end.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
}

// newPipe returns a pipe of which only the server's end, read or write, does not block: the other end is a process's, and programs do
// not expect theirs to fail with EAGAIN.
func newPipe(serverReads bool) (server, process *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	ours, theirs := fds[1], fds[0]
	if serverReads {
		ours, theirs = theirs, ours
	}
	if _, err := unix.FcntlInt(uintptr(theirs), unix.F_SETFL, 0); err != nil {
		_, _ = unix.Close(ours), unix.Close(theirs)
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(ours), "pipe"), os.NewFile(uintptr(theirs), "pipe"), nil
}
