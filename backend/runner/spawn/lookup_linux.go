package spawn

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

type identity struct{ uid, gid uint32 }

// candidates lists the files that argv[0] may mean, in the order of the command's own PATH. What the sandbox may certainly not execute
// is left out, since trying costs a fork; when that leaves nothing, the error is the one that trying would have had.
func candidates(cmd Command, as identity) ([]string, error) {
	name := cmd.Argv[0]
	if strings.Contains(name, "/") {
		return []string{name}, nil
	}
	var found []string
	var refused bool
	for _, dir := range filepath.SplitList(pathOf(cmd.Env)) {
		path := beside(dir, name)
		st, err := os.Stat(under(cmd.Dir, path))
		switch {
		case err != nil || st.IsDir():
		case mayExecute(st, as):
			found = append(found, path)
		default:
			refused = true
		}
	}
	switch {
	case len(found) > 0:
		return found, nil
	case refused:
		return nil, syscall.EACCES
	}
	return nil, syscall.ENOENT
}

// beside joins without cleaning "./" away, so that the result is never looked up again.
func beside(dir, name string) string {
	if dir == "" {
		dir = "."
	}
	return dir + "/" + name
}

func under(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// mayExecute reads the permission bits as the kernel would for as, who has no other groups.
func mayExecute(st fs.FileInfo, as identity) bool {
	owner, ok := st.Sys().(*syscall.Stat_t)
	mode := st.Mode().Perm()
	switch {
	case !ok:
		return true
	case as.uid == 0:
		return mode&0o111 != 0
	case owner.Uid == as.uid:
		return mode&0o100 != 0
	case owner.Gid == as.gid:
		return mode&0o010 != 0
	}
	return mode&0o001 != 0
}
