package runner

import (
	"errors"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"syscall"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

const (
	maxPath = 4096
	maxName = 255
)

func unsafePath(text string) *failure {
	return &failure{http.StatusBadRequest, wire.CodeUnsafePath, text}
}

// cleanPath returns the canonical form of a path below the workspace, "." for the workspace itself. It refuses what could lead
// outside even where it does not: what a path means should not depend on what is there.
func cleanPath(p string) (string, error) {
	switch {
	case p == "":
		return "", badRequest("path is missing")
	case len(p) > maxPath:
		return "", unsafePath("path is longer than 4096 bytes")
	case p[0] == '/':
		return "", unsafePath("path is absolute; it must be relative to the workspace")
	case strings.IndexByte(p, 0) >= 0:
		return "", unsafePath("path has a NUL byte")
	}
	for name := range strings.SplitSeq(p, "/") {
		if name == ".." {
			return "", unsafePath("path has .. in it")
		}
		if len(name) > maxName {
			return "", unsafePath("path has a name longer than 255 bytes")
		}
	}
	return path.Clean(p), nil
}

// fileFailure says how an error of the file system is answered; op and p are what was tried.
func fileFailure(op, p string, err error) error {
	if f, ok := errors.AsType[*failure](err); ok {
		return &failure{f.status, f.code, op + " " + p + ": " + f.text}
	}
	status, code := classifyFile(err)
	if status == 0 {
		return err
	}
	return &failure{status, code, op + " " + p + ": " + reason(err)}
}

func classifyFile(err error) (int, string) {
	switch {
	case leadsOutside(err), errors.Is(err, syscall.ELOOP):
		return http.StatusBadRequest, wire.CodeUnsafePath
	case errors.Is(err, fs.ErrNotExist):
		return http.StatusNotFound, wire.CodeNotFound
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return http.StatusInsufficientStorage, wire.CodeNoSpace
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE): // it may be done in part
		return http.StatusServiceUnavailable, wire.CodeUnknown
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return http.StatusForbidden, wire.CodePermissionDenied
	case errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, fs.ErrExist):
		return http.StatusConflict, wire.CodeExists
	}
	for _, wrongKind := range []error{syscall.ENOTDIR, syscall.EISDIR, syscall.ENXIO, syscall.EINVAL, syscall.ENAMETOOLONG} {
		if errors.Is(err, wrongKind) {
			return http.StatusBadRequest, wire.CodeBadRequest
		}
	}
	return 0, ""
}

// reason leaves out the path on this machine, which is none of the client's business.
func reason(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e.Error()
	}
	return err.Error()
}

// leadsOutside recognises what os.Root says of a path that leaves it, for which there is no exported error.
func leadsOutside(err error) bool {
	e, ok := errors.AsType[*fs.PathError](err)
	return ok && e.Err.Error() == "path escapes from parent"
}
