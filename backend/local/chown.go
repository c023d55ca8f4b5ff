//go:build unix

package local

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// chownTree gives a stopped sandbox's workspace to another uid. Nothing of the sandbox runs, so nothing moves meanwhile; links
// are changed themselves, never what they point to, and what is root's stays so. After an error it can be called again.
func chownTree(root string, uid uint32) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); !ok || st.Uid == 0 {
			return nil
		}
		return os.Lchown(path, int(uid), int(uid))
	})
}
