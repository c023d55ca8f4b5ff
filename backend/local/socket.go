package local

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// maxSocket is how long the path of a socket may be on the systems that allow least.
const maxSocket = 103

// socketPath returns a path for the socket of the state directory that a socket address has room for. Where the path itself is too
// long it goes through held, the open directory, and is good for this process as long as held is open.
func socketPath(dir string, held *os.File) (string, error) {
	path := filepath.Join(dir, socketFile)
	if len(path) <= maxSocket {
		return path, nil
	}
	short := filepath.Join("/proc/self/fd", strconv.Itoa(int(held.Fd())))
	if _, err := os.Stat(short); err != nil {
		return "", fmt.Errorf("local: the path %s has %d bytes, and a socket's may have %d: choose a shorter state directory", path, len(path), maxSocket)
	}
	return filepath.Join(short, socketFile), nil
}

// listen opens the socket of the state directory. The caller holds the host's lock, so a socket that is there is a dead host's.
func listen(dir string) (net.Listener, error) {
	held, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	defer held.Close()
	path, err := socketPath(dir, held)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("local: %w", err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	ln.SetUnlinkOnClose(false) // its name may be gone by then: held is closed. The next host removes it
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	return ln, nil
}

// dialer dials the socket, whatever the address says.
func dialer(path string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
}
