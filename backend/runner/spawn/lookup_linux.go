package spawn

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

type identity struct{ uid, gid uint32 }

// pathsTried bounds how many directories of a PATH are tried, since each costs a fork.
const pathsTried = 32

// candidates lists the files that argv[0] may mean, in the order of the command's own PATH. What the sandbox may certainly not execute
// is left out, since trying costs a fork. When that leaves nothing, all are returned, to be tried in vain: this process sees more
// than the sandbox does, and only what the sandbox itself meets may tell what is there.
func candidates(cmd Command, as identity) []string {
	name := cmd.Argv[0]
	if strings.Contains(name, "/") {
		return []string{name}
	}
	var found, all []string
	for _, dir := range filepath.SplitList(pathOf(cmd.Env)) {
		path := beside(dir, name)
		if !slices.Contains(all, path) && len(all) < pathsTried {
			all = append(all, path)
		}
	}
	for _, path := range all {
		if st, err := os.Stat(under(cmd.Dir, path)); err == nil && !st.IsDir() && mayExecute(st, as) {
			found = append(found, path)
		}
	}
	if len(found) > 0 {
		return found
	}
	return all
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
