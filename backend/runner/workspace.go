package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// workspace is the file tree of a sandbox as the server sees it. All access goes through an os.Root, so that no path and no symlink
// leads outside, whatever the sandbox does meanwhile. The server may be privileged: what it opens it looks at before it uses it, and what
// it makes it gives to the owner of the workspace by descriptor, never by name.
type workspace struct {
	home     string
	dev, ino uint64 // of home, when it was added
	uid, gid int    // its owner
	chown    bool   // the owner is somebody else than this process
	max      int64  // bytes of a file

	mu     sync.Mutex // guards the fields below
	root   *os.Root   // opened on first use
	closed bool
	temps  map[string]bool // names of files that are being written
}

func newWorkspace(home string, max int64) (*workspace, error) {
	if !filepath.IsAbs(home) {
		return nil, fmt.Errorf("home %q is not absolute", home)
	}
	info, err := os.Lstat(home)
	if err != nil {
		return nil, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() {
		return nil, fmt.Errorf("home %s is not a directory", home)
	}
	w := &workspace{home: home, dev: uint64(st.Dev), ino: st.Ino, uid: int(st.Uid), gid: int(st.Gid), max: max} //nolint:unconvert // Dev is narrower elsewhere
	w.chown = os.Geteuid() == 0 && (w.uid != 0 || w.gid != os.Getegid())
	return w, nil
}

// open returns the root. Whoever owns the directory above the workspace could put another one in its place, so it has to be the
// directory it was.
func (w *workspace) open() (*os.Root, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, errSandboxGone
	}
	if w.root != nil {
		return w.root, nil
	}
	root, err := os.OpenRoot(w.home)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || uint64(st.Dev) != w.dev || st.Ino != w.ino { //nolint:unconvert // as above
			err = unsafePath("the workspace is not the directory it was")
		}
	}
	if err != nil {
		_ = root.Close()
		return nil, err
	}
	w.root = root
	return root, nil
}

func (w *workspace) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.root != nil {
		_ = w.root.Close()
		w.root = nil
	}
}

// checkDir says whether name is a directory inside. The process enters it by path, with the rights of the sandbox, so this is for the
// one who mistyped, not against the one who means harm.
func (w *workspace) checkDir(name string) error {
	if name == "." {
		return nil
	}
	root, err := w.open()
	if err != nil {
		return err
	}
	info, err := root.Stat(name)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err == nil {
		return nil
	}
	err = fileFailure("cwd", name, err)
	if f, ok := errors.AsType[*failure](err); ok {
		f.status = 400 // the route exists
	}
	return err
}

// openFile opens a file for reading or writing, if that is all it is: opening a FIFO would block, a device would do something, and a
// hard link to a file of somebody else would lend them the rights of this process.
func (w *workspace) openFile(root *os.Root, name string, flag int) (*os.File, fs.FileInfo, error) {
	before, err := root.Stat(name)
	if err != nil {
		return nil, nil, err
	}
	if err := w.checkRegular(before); err != nil {
		return nil, nil, err
	}
	f, err := root.OpenFile(name, flag|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = w.checkRegular(info) // it may have been replaced
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

func (w *workspace) checkRegular(info fs.FileInfo) error {
	if info.IsDir() {
		return badRequest("it is a directory")
	}
	if !info.Mode().IsRegular() {
		return badRequest("it is no regular file")
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || (st.Nlink > 1 && int(st.Uid) != w.uid) {
		return unsafePath("it is a hard link to a file of somebody else")
	}
	return nil
}

// give makes the owner of the workspace the owner of what this process has just made.
func (w *workspace) give(f *os.File) error {
	if !w.chown {
		return nil
	}
	return f.Chown(w.uid, w.gid)
}

// mkdir makes one directory and gives it away. That it exists is no error if it is a directory.
func (w *workspace) mkdir(root *os.Root, name string) error {
	err := root.Mkdir(name, 0o755)
	if errors.Is(err, fs.ErrExist) {
		info, statErr := root.Stat(name)
		if statErr == nil && info.IsDir() {
			return nil
		}
		return errors.Join(statErr, err)
	}
	if err != nil || !w.chown {
		return err
	}
	dir, err := root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	// In the meantime another directory may have taken the place. It does not change hands unless it is this process's.
	if info, err := dir.Stat(); err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
		return err
	}
	return w.give(dir)
}

// mkdirAll makes a directory and those above it. Each is made by way of the one above, since a walk from the root for each of many would
// take as long as all of them squared.
func (w *workspace) mkdirAll(root *os.Root, name string) error {
	names := strings.Split(name, "/")
	there := sort.Search(len(names), func(n int) bool { return !isDir(root, path.Join(names[:n+1]...)) })
	if there == len(names) {
		return nil
	}
	above, err := root.OpenRoot(path.Join(append([]string{"."}, names[:there]...)...))
	if err != nil {
		return err
	}
	for _, name := range names[there:] {
		err := w.mkdir(above, name)
		if err != nil {
			return errors.Join(err, above.Close())
		}
		next, err := above.OpenRoot(name)
		if err = errors.Join(err, above.Close()); err != nil {
			return err
		}
		above = next
	}
	return above.Close()
}

func isDir(root *os.Root, name string) bool {
	info, err := root.Stat(name)
	return err == nil && info.IsDir()
}
