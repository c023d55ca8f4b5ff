package local

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/benbjohnson/clock"
)

// errLocked is returned by lockNow when somebody else holds the lock.
var errLocked = errors.New("local: locked")

// resolveDir makes the state directory, for its owner alone, and returns the one name by which all that run on it know it.
func resolveDir(dir string) (string, error) {
	if dir == "" {
		return "", errors.New("local: no state directory is given")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("local: state directory: %w", err)
	}
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err == nil {
		err = closeDir(abs)
	}
	if err != nil {
		return "", fmt.Errorf("local: state directory: %w", err)
	}
	return abs, nil
}

// closeDir takes the state directory away from everybody but its owner. It refuses one that others may be using, such as /tmp, since
// they would be shut out of it.
func closeDir(dir string) error {
	fi, err := os.Stat(dir)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	ours := func(e fs.DirEntry) bool {
		return slices.Contains([]string{sandboxesDir, keyFile, lockFile, startFile}, e.Name())
	}
	if fi.Mode().Perm()&0o077 != 0 && len(entries) > 0 && !slices.ContainsFunc(entries, ours) {
		return fmt.Errorf("%s is open to other users and holds what is not ours, such as %s: name a directory that is for nothing else", dir, entries[0].Name())
	}
	return os.Chmod(dir, 0o700)
}

// markOf returns what tells the sandboxes of this state directory from those of another on the same machine.
func markOf(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:6]) + "-"
}

// lockNow takes the lock of a file, until the file is closed or the process ends.
func lockNow(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errLocked
	}
	return nil, fmt.Errorf("local: lock %s: %w", path, err)
}

// lockSoon is lockNow that does not give up at once: who only looks whether a lock is taken has it for a moment.
func lockSoon(path string, clk clock.Clock) (f *os.File, err error) {
	for range 20 {
		if f, err = lockNow(path); !errors.Is(err, errLocked) {
			break
		}
		clk.Sleep(startPoll)
	}
	return f, err
}

// sign writes into a lock who holds it.
func sign(lock *os.File) error {
	err := lock.Truncate(0)
	if err == nil {
		_, err = lock.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	}
	if err != nil {
		return fmt.Errorf("local: %w", err)
	}
	return nil
}

// makeKey returns the key of the state directory, which it makes when there is none. Only the host calls it, under its lock.
func makeKey(dir string) (string, error) {
	key, err := readKey(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	key = rand.Text()
	tmp := filepath.Join(dir, keyFile+".new")
	if err := os.WriteFile(tmp, []byte(key+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("local: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, keyFile)); err != nil {
		return "", fmt.Errorf("local: %w", err)
	}
	return key, syncDir(dir)
}

func readKey(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, keyFile))
	if err != nil {
		return "", fmt.Errorf("local: %w", err)
	}
	key := strings.TrimSpace(string(b))
	if key == "" {
		return "", fmt.Errorf("local: %s is empty: end the host runner, remove the file, and a new one is made", filepath.Join(dir, keyFile))
	}
	return key, nil
}
