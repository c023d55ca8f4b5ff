package runner

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/bodylimit"
)

// writing is one write of a file.
type writing struct {
	files *workspace
	root  *os.Root
	name  string
	mode  *fs.FileMode // nil: as it is, 0644 for a new file
	body  io.Reader
}

// writeFile takes the body as a file. Without an offset the file appears whole or not at all; with one the body is written into the
// file as it is.
func (c *call) writeFile() error {
	root, name, err := c.at(false)
	if err != nil {
		return err
	}
	offset, err := c.count("offset")
	if err != nil {
		return err
	}
	mkdir, err := c.flag("mkdir")
	if err != nil {
		return err
	}
	wr := &writing{files: c.sb.files, root: root, name: name}
	if wr.mode, err = c.mode(); err != nil {
		return err
	}
	within := c.query.Has("offset")
	limit := *c.srv.file
	if limit.Max -= offset; limit.Max < 0 {
		return badRequest("offset %d is over the limit of %d bytes of a file", offset, c.srv.file.Max)
	}
	if wr.body, err = limit.Body(c.w, c.r); err != nil {
		return err
	}
	defer c.hurryWhenGone(true)()
	if mkdir {
		if err := wr.files.mkdirAll(root, path.Dir(name)); err != nil {
			return fileFailure("mkdir", path.Dir(name), err)
		}
	}
	n, err := wr.run(within, offset)
	if err != nil {
		return c.writeFailure(name, err)
	}
	c.answer(http.StatusOK, wire.Written{Path: name, Bytes: n})
	return nil
}

// writeFailure tells what the file system said from what became of the body.
func (c *call) writeFailure(name string, err error) error {
	if _, large := errors.AsType[*bodylimit.TooLargeError](err); large {
		return err
	}
	failed := fileFailure("write", name, err)
	if _, known := errors.AsType[*failure](failed); known {
		return failed
	}
	if _, local := errors.AsType[*fs.PathError](err); local {
		return err
	}
	if c.sb.ctx.Err() != nil {
		return errSandboxGone // it was not the client that ended the body
	}
	return badRequest("write %s: the body ended early: %v", name, err)
}

func (c *call) mode() (*fs.FileMode, error) {
	text := c.query.Get("mode")
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseUint(text, 8, 32)
	if err != nil || n > 0o777 {
		return nil, badRequest("mode must be octal permission bits up to 0777, not %.40q", text)
	}
	mode := fs.FileMode(n)
	return &mode, nil
}

func (wr *writing) run(within bool, offset int64) (int64, error) {
	if within {
		return wr.into(offset)
	}
	return wr.replace()
}

// into writes into the file that is there, or a new one.
func (wr *writing) into(offset int64) (int64, error) {
	f, _, err := wr.files.openFile(wr.root, wr.name, os.O_WRONLY)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = wr.create(wr.name, 0o644)
	}
	if err != nil {
		return 0, err
	}
	if wr.mode != nil {
		err = f.Chmod(*wr.mode)
	}
	var n int64
	if err == nil {
		n, err = io.Copy(io.NewOffsetWriter(f, offset), wr.body)
	}
	return n, errors.Join(err, f.Close())
}

// replace writes a new file beside the old one and puts it in its place.
func (wr *writing) replace() (int64, error) {
	mode, err := wr.checkTarget()
	if err != nil {
		return 0, err
	}
	temp := wr.files.newTemp(wr.name)
	defer wr.files.endTemp(temp)
	f, err := wr.create(temp, mode)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(f, wr.body)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = wr.root.Rename(temp, wr.name)
	}
	if err != nil {
		_ = wr.root.Remove(temp) // best effort: err is what counts
		return 0, err
	}
	return n, nil
}

// checkTarget says whether the path may be written to, and with which mode. A symlink there is replaced, unless it leads outside: then
// whoever asks expects what cannot be.
func (wr *writing) checkTarget() (fs.FileMode, error) {
	mode := fs.FileMode(0o644)
	info, err := wr.root.Stat(wr.name)
	switch {
	case errors.Is(err, fs.ErrNotExist): // a symlink to nowhere included
	case err != nil:
		return 0, err
	case info.IsDir():
		return 0, syscall.EISDIR
	case info.Mode().IsRegular():
		mode = info.Mode().Perm()
	default:
		return 0, badRequest("it is no regular file")
	}
	if wr.mode != nil {
		mode = *wr.mode
	}
	return mode, nil
}

// create makes a file that was not there and gives it away. Until it is the owner's nobody else can open it.
func (wr *writing) create(name string, mode fs.FileMode) (*os.File, error) {
	f, err := wr.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(wr.files.give(f), f.Chmod(mode)); err != nil {
		_ = f.Close()
		_ = wr.root.Remove(name)
		return nil, fmt.Errorf("give away: %w", err)
	}
	return f, nil
}
