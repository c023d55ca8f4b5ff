package runner

import (
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/keepwell-go/keepwell/backend/runner/rmtree"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// maxEntries bounds the list of one directory, which is made in memory.
const maxEntries = 16384

// at returns the root and the path of a file request. The workspace itself is a path only where that makes sense.
func (c *call) at(itself bool) (*os.Root, string, error) {
	raw := c.query.Get("path")
	if raw == "" && itself {
		raw = "."
	}
	name, err := cleanPath(raw)
	if err != nil {
		return nil, "", err
	}
	if name == "." && !itself {
		return nil, "", badRequest("path is the workspace itself")
	}
	root, err := c.sb.files.open()
	return root, name, err
}

// readFile sends a part of a file. A file that shrinks meanwhile cuts the answer short, which the client sees from its length.
func (c *call) readFile() error {
	root, name, err := c.at(false)
	if err != nil {
		return err
	}
	offset, err := c.count("offset")
	if err != nil {
		return err
	}
	length, err := c.count("length")
	if err != nil {
		return err
	}
	f, info, err := c.sb.files.openFile(root, name, os.O_RDONLY)
	if err != nil {
		return fileFailure("read", name, err)
	}
	defer func() { _ = f.Close() }()
	n := max(info.Size()-offset, 0)
	if c.query.Has("length") {
		n = min(n, length)
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return fileFailure("read", name, err)
	}
	defer c.hurryWhenGone(false)()
	h := c.w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.FormatInt(n, 10))
	_, _ = io.CopyN(c.w, f, n)
	return nil
}

func (c *call) statFile() error {
	root, name, err := c.at(true)
	if err != nil {
		return err
	}
	info, err := root.Lstat(name)
	if err != nil {
		return fileFailure("stat", name, err)
	}
	c.answer(http.StatusOK, wire.FileEntry{
		Name: path.Base(name), Path: name, Type: kind(info.Mode()), Size: info.Size(),
		MtimeMS: info.ModTime().UnixMilli(), Mode: octal(uint32(info.Mode().Perm())),
	})
	return nil
}

func kind(m fs.FileMode) string {
	switch m.Type() {
	case 0:
		return "file"
	case fs.ModeDir:
		return "dir"
	case fs.ModeSymlink:
		return "symlink"
	default:
		return "other"
	}
}

func octal(perm uint32) string {
	text := strconv.FormatUint(uint64(perm), 8)
	return strings.Repeat("0", max(4-len(text), 0)) + text
}

func (c *call) listFiles() error {
	root, name, err := c.at(true)
	if err != nil {
		return err
	}
	dir, err := root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fileFailure("list", name, err)
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(maxEntries + 1)
	if err != nil && err != io.EOF {
		return fileFailure("list", name, err)
	}
	if len(names) > maxEntries {
		return &failure{http.StatusRequestEntityTooLarge, wire.CodePayloadTooLarge, "list " + name + ": more than " + strconv.Itoa(maxEntries) + " entries"}
	}
	slices.Sort(names)
	list := wire.FileList{Entries: make([]wire.FileEntry, 0, len(names))}
	for _, entry := range names {
		if e, ok := entryAt(dir, name, entry); ok && !c.sb.files.isTemp(dir, e) {
			list.Entries = append(list.Entries, e)
		}
	}
	c.answer(http.StatusOK, list)
	return nil
}

// entryAt describes an entry by the descriptor of its directory, so that it is the entry of that directory and of no other; false if it
// has gone meanwhile.
func entryAt(dir *os.File, dirName, name string) (wire.FileEntry, bool) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return wire.FileEntry{}, false
	}
	kinds := map[uint32]string{unix.S_IFREG: "file", unix.S_IFDIR: "dir", unix.S_IFLNK: "symlink"}
	e := wire.FileEntry{
		Name: name, Path: path.Join(dirName, name), Type: kinds[uint32(st.Mode)&unix.S_IFMT], Size: st.Size,
		MtimeMS: modified(&st), Mode: octal(uint32(st.Mode) & 0o777),
	}
	if e.Type == "" {
		e.Type = "other"
	}
	return e, true
}

func modified(st *unix.Stat_t) int64 {
	sec, nsec := st.Mtim.Unix()
	return sec*1000 + nsec/1e6
}

func (c *call) deleteFile() error {
	root, name, err := c.at(false)
	if err != nil {
		return err
	}
	recursive, err := c.flag("recursive")
	if err != nil {
		return err
	}
	if _, err := root.Lstat(name); err != nil {
		return fileFailure("delete", name, err)
	}
	remove := root.Remove
	if recursive {
		remove = func(name string) error { return removeTree(root, name) }
	}
	if err := remove(name); err != nil {
		return fileFailure("delete", name, err)
	}
	c.answer(http.StatusOK, wire.Done{OK: true})
	return nil
}

// removeTree removes below the root with few open files, however deep the tree is. Its parent is found through the root, and all else by
// descriptors.
func removeTree(root *os.Root, name string) error {
	dir, err := root.OpenFile(path.Dir(name), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return rmtree.At(dir, path.Base(name))
}

func (c *call) makeDir() error {
	root, name, err := c.at(true)
	if err != nil {
		return err
	}
	if err := c.sb.files.mkdirAll(root, name); err != nil {
		return fileFailure("mkdir", name, err)
	}
	c.answer(http.StatusOK, wire.Done{OK: true})
	return nil
}
