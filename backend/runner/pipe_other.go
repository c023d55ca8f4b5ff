//go:build unix && !linux

package runner

import (
	"os"
	"syscall"
)

const pipeSize = 64 << 10

// growPipe does nothing: pipes grow by themselves here.
func growPipe(syscall.RawConn) {}

// newPipe returns a pipe of which only the server's end, read or write, does not block: the other end is a process's, and programs do
// not expect theirs to fail with EAGAIN.
func newPipe(serverReads bool) (server, process *os.File, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	server, process = w, r
	if serverReads {
		server, process = r, w
	}
	if err := syscall.SetNonblock(int(process.Fd()), false); err != nil {
		_, _ = r.Close(), w.Close()
		return nil, nil, err
	}
	return server, process, nil
}
