package runner

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A process that writes much in small pieces would have each of them read, sent and flushed by itself. What it writes while the pump
// pauses is moved at once, and its pipe holds more than it can write meanwhile. Little output is never waited for.
const (
	busy   = 4 << 10 // bytes of a read, and more: the process writes much
	gather = 500 * time.Microsecond
)

// pumped says how far a pump has come when it reports.
type pumped uint8

const (
	pumpedAll   pumped = iota // the stream has ended
	pumpedSoFar               // others hold the stream open; what the process wrote was read
)

// pump reads one stream of a process into its output, and reports once on done: at the end of the stream, or after a read deadline
// when everything was read that was there. After that it goes on until nobody holds the stream.
func (p *process) pump(stream int, end *os.File, done chan<- pumped) {
	defer p.sb.settled()
	defer func() { _ = end.Close() }()
	conn, err := end.SyscallConn()
	for grown := false; err == nil; {
		var n int
		n, err = p.pumpOnce(stream, conn.Read)
		if n >= busy && !grown {
			growPipe(conn)
			grown = true
		}
		if busy <= n && n < readSize {
			time.Sleep(gather)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			_ = end.SetReadDeadline(time.Time{})
			if err = p.pumpRest(stream, conn); err == nil {
				done <- pumpedSoFar
				done = nil
			}
		}
	}
	if done != nil {
		done <- pumpedAll
	}
}

// pumpRest reads what is in the pipe without waiting for more. It reads no more than a pipe holds, or a busy heir of the pipe would
// keep it here for ever.
func (p *process) pumpRest(stream int, conn syscall.RawConn) error {
	atOnce := func(read func(fd uintptr) bool) error {
		return conn.Read(func(fd uintptr) bool {
			read(fd)
			return true
		})
	}
	for n := 0; n < pipeSize; n += readSize {
		if _, err := p.pumpOnce(stream, atOnce); err != nil {
			return err
		}
	}
	return nil
}

// pumpOnce moves what one read yields, and returns how much that was. A buffer is taken only when there is something to read, so that a silent process holds none.
func (p *process) pumpOnce(stream int, wait func(read func(fd uintptr) bool) error) (n int, err error) {
	var b *buffers
	waitErr := wait(func(fd uintptr) bool {
		b = p.sb.srv.takeBuffers()
		n, err = readFD(int(fd), b.raw)
		if err == unix.EAGAIN {
			p.sb.srv.bufs.Put(b)
			b, n, err = nil, 0, nil
			return false
		}
		return true
	})
	if b != nil {
		if n > 0 {
			p.out.append(stream, b.raw[:n])
		}
		p.sb.srv.bufs.Put(b)
		if n == 0 && err == nil {
			err = io.EOF
		}
	}
	return n, errors.Join(waitErr, err)
}

func readFD(fd int, buf []byte) (int, error) {
	for {
		n, err := unix.Read(fd, buf)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}
