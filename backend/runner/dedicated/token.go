package dedicated

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// tokenPipe is the environment variable that names the descriptor on which a program hands the token to itself.
const tokenPipe = "KEEPWELL_RUNNER_TOKEN_FD"

// takeToken returns the token from the environment. The kernel goes on showing the environment a program was started with whatever
// the program does to it, so the program is executed once more without the token, which it hands itself through a pipe.
func takeToken() (string, error) {
	if fd := os.Getenv(tokenPipe); fd != "" {
		return fromPipe(fd)
	}
	token := os.Getenv(TokenVariable)
	if token == "" {
		return "", nil
	}
	if len(token) > os.Getpagesize() { // what a pipe takes at once
		return "", fmt.Errorf("runner: %s has %d bytes, over the limit of %d", TokenVariable, len(token), os.Getpagesize())
	}
	return "", executeAnew(token)
}

func fromPipe(text string) (string, error) {
	if err := os.Unsetenv(tokenPipe); err != nil {
		return "", err
	}
	fd, err := strconv.Atoi(text)
	if err != nil {
		return "", fmt.Errorf("runner: %s is no number", tokenPipe)
	}
	pipe := os.NewFile(uintptr(fd), "token")
	defer func() { _ = pipe.Close() }()
	buf := make([]byte, os.Getpagesize())
	n, err := pipe.Read(buf)
	if err != nil || n == 0 {
		return "", fmt.Errorf("runner: read token from %s: %w", tokenPipe, err)
	}
	return string(buf[:n]), nil
}

// executeAnew does not return, unless it fails.
func executeAnew(token string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("runner: hide token: %w", err)
	}
	if _, err := w.WriteString(token); err != nil {
		return fmt.Errorf("runner: hide token: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("runner: hide token: %w", err)
	}
	fd, err := syscall.Dup(int(r.Fd())) // a duplicate stays open over exec, unlike r
	if err != nil {
		return fmt.Errorf("runner: hide token: %w", err)
	}
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, TokenVariable+"=") {
			env = append(env, entry)
		}
	}
	env = append(env, tokenPipe+"="+strconv.Itoa(fd))
	_ = w.Close()
	return fmt.Errorf("runner: hide token: execute %s: %w", self, syscall.Exec(self, commandLine(), env))
}

// commandLine returns what this process was started with. Where a loader was started, which then loaded the program, os.Args lacks
// the loader's own arguments.
func commandLine() []string {
	line, err := os.ReadFile("/proc/self/cmdline")
	if err != nil {
		return os.Args
	}
	return strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
}

// listenPrivately makes the socket with mode 0600 from its first moment.
func listenPrivately(path string) (net.Listener, error) {
	old := syscall.Umask(0o177)
	defer syscall.Umask(old)
	return net.Listen("unix", path)
}
