package runner

import (
	"crypto/rand"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// tempPrefix begins the name of a file that is being written and not in its place yet. 26 characters of base32 follow.
const tempPrefix = ".keepwell-"

// newTemp returns the path of a file to be written beside the one that it will replace. endTemp is due once it is not there any more.
func (w *workspace) newTemp(target string) string {
	name := tempPrefix + rand.Text()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.temps == nil {
		w.temps = map[string]bool{}
	}
	w.temps[name] = true
	return path.Join(path.Dir(target), name)
}

func (w *workspace) endTemp(temp string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.temps, path.Base(temp))
}

// isTemp says whether an entry of a directory is a file that is being written, or that a runner was writing when it was killed. What
// was left behind is removed: a walk through all directories at every start would cost more than a look at those that are looked at.
func (w *workspace) isTemp(dir *os.File, e wire.FileEntry) bool {
	random, ok := strings.CutPrefix(e.Name, tempPrefix)
	if !ok || len(random) != 26 || strings.Trim(random, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" || e.Type != "file" {
		return false
	}
	if !w.writes(e.Name) {
		_ = unix.Unlinkat(int(dir.Fd()), e.Name, 0) // the next list tries again
	}
	return true
}

func (w *workspace) writes(temp string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.temps[temp]
}
