//go:build unix

// Package rmtree removes directory trees that somebody hostile has made. A removal that opens each level of a tree, or names it by a
// path, can be made to fail by a tree that is deep enough: then the files stay, and with them whatever waits for their end.
package rmtree

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxOpen bounds how many directories a removal holds open; what lies deeper is moved up first.
const maxOpen = 64

// Remove removes the entry name of the directory parent and all below it. It follows no symbolic link, opens directories
// that their owner had closed, and needs neither memory nor open files in proportion to the depth of the tree: what lies deep is
// moved into parent meanwhile, under names that begin with ".deep-". It removes all it can and returns the first error; what is
// not there is removed. It is safe for concurrent use.
func Remove(parent, name string) error {
	dir, err := os.OpenFile(parent, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	return At(dir, name)
}

// At is Remove in a directory that is open.
func At(dir *os.File, name string) error {
	parent := dir.Name()
	r := remover{top: int(dir.Fd())}
	r.entry(r.top, name, filepath.Join(parent, name), 0)
	for len(r.moved) > 0 {
		next := r.moved[len(r.moved)-1]
		r.moved = r.moved[:len(r.moved)-1]
		r.entry(r.top, next, filepath.Join(parent, next), 0)
	}
	runtime.KeepAlive(dir)
	return r.first
}

type remover struct {
	top     int      // the parent of the tree, where what lies deep is moved to
	moved   []string // names there that are yet to be removed
	names   int      // how many names were tried for them
	removed int
	first   error
}

func (r *remover) fail(op, path string, err error) {
	if r.first == nil {
		r.first = &os.PathError{Op: op, Path: path, Err: err}
	}
}

// entry removes one name of the directory fd, depth directories below the top.
func (r *remover) entry(fd int, name, path string, depth int) {
	err := unix.Unlinkat(fd, name, 0)
	if err != nil && isDir(fd, name) {
		err = r.directory(fd, name, path, depth)
	}
	if err == nil {
		r.removed++
	} else if !errors.Is(err, unix.ENOENT) {
		r.fail("remove", path, err)
	}
}

// directory removes a directory and what it holds. Entries can be missed when a directory changes while it is read, so it is
// read until it is empty or nothing more can be removed.
func (r *remover) directory(fd int, name, path string, depth int) error {
	for {
		err := unix.Unlinkat(fd, name, unix.AT_REMOVEDIR)
		if !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
			return err
		}
		if os.Geteuid() != 0 { // its owner may have closed it, and so have closed it to us
			if err := unix.Fchmodat(fd, name, 0o700, 0); err != nil {
				return err
			}
		}
		if depth >= maxOpen {
			return r.moveUp(fd, name)
		}
		before := r.removed
		if err := r.children(fd, name, path, depth+1); err != nil {
			return err
		}
		if r.removed == before {
			return unix.Unlinkat(fd, name, unix.AT_REMOVEDIR)
		}
	}
}

// children removes what the directory name of fd holds, as far as it can.
func (r *remover) children(fd int, name, path string, depth int) error {
	dir, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(dir), path)
	defer f.Close()
	for {
		names, err := f.Readdirnames(1024)
		for _, n := range names {
			r.entry(dir, n, path+"/"+n, depth)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// moveUp moves a directory beside the tree, to be removed after it.
func (r *remover) moveUp(fd int, name string) error {
	for {
		r.names++
		up := ".deep-" + strconv.Itoa(r.names)
		err := unix.Renameat(fd, name, r.top, up)
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTDIR) {
			continue // left by a removal that was cut short
		}
		if err == nil {
			r.moved = append(r.moved, up)
		}
		return err
	}
}

func isDir(fd int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}
