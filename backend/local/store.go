package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/keepwell-go/keepwell/backend/runner/rmtree"
)

const (
	metaFile   = "meta.json"
	doomedFile = "meta.destroying.json" // what metaFile is renamed to when a destroy begins
	homeDir    = "home"
	tmpDir     = "tmp" // in the home
)

// store keeps sandboxes on the disk, one directory each. A directory without a metaFile is none: it was never finished.
// Its methods may run at the same time for different ids.
type store struct {
	dir string
}

// record is what load found under one name. Where err is set only the UID of meta counts: that of whoever owns the home.
type record struct {
	meta   meta
	doomed bool
	err    error // the directory is there and cannot be read
}

// openStore makes the directory of all sandboxes; others may pass through it but not list it.
func openStore(dir string) (*store, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	return &store{dir}, syncDir(filepath.Dir(dir))
}

func (s *store) path(id string, rest ...string) string {
	return filepath.Join(append([]string{s.dir, id}, rest...)...)
}

// load reads every label and removes what was never finished; what cannot be removed is a record with an error.
func (s *store) load() (map[string]record, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	found := make(map[string]record, len(entries))
	for _, e := range entries {
		rec := s.read(e.Name())
		if errors.Is(rec.err, fs.ErrNotExist) {
			if rec.err = s.remove(e.Name()); rec.err == nil {
				continue
			}
		}
		if rec.err != nil {
			rec.meta = meta{UID: ownerOf(s.path(e.Name(), homeDir))}
		}
		found[e.Name()] = rec
	}
	return found, nil
}

func (s *store) read(id string) (rec record) {
	b, err := os.ReadFile(s.path(id, metaFile))
	if errors.Is(err, fs.ErrNotExist) {
		rec.doomed = true
		b, err = os.ReadFile(s.path(id, doomedFile))
	}
	if err != nil {
		return record{err: err}
	}
	if err := json.Unmarshal(b, &rec.meta); err != nil {
		return record{err: fmt.Errorf("%s: %w", s.path(id, metaFile), err)}
	}
	if rec.meta.ID != id || rec.meta.Instance == "" {
		return record{err: fmt.Errorf("%s is of sandbox %q, instance %q", s.path(id, metaFile), rec.meta.ID, rec.meta.Instance)}
	}
	return rec
}

// errForeign is returned by make when there is a directory already, which it leaves alone.
var errForeign = errors.New("a directory of its name exists that this host did not make")

// make makes the directory of a new sandbox, its label last; on an error nothing is left, or the error says what.
func (s *store) make(m meta) (err error) {
	err = os.Mkdir(s.path(m.ID), 0o710)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %w", errForeign, err)
	}
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.remove(m.ID))
		}
	}()
	home := s.path(m.ID, homeDir)
	for _, dir := range []string{home, filepath.Join(home, tmpDir)} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	if err := s.own(m); err != nil {
		return err
	}
	if err := s.write(m); err != nil {
		return err
	}
	return syncDir(s.dir)
}

// own gives the sandbox's directories to its uid: the home as owner, the way to it by the group of the same number.
func (s *store) own(m meta) error {
	if m.UID == 0 {
		return nil
	}
	uid, home := int(m.UID), s.path(m.ID, homeDir)
	return errors.Join(
		os.Lchown(s.path(m.ID), 0, uid),
		os.Lchown(home, uid, uid),
		os.Lchown(filepath.Join(home, tmpDir), uid, uid),
	)
}

// write replaces the label, all or nothing, and returns when it is on the disk.
func (s *store) write(m meta) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	name := s.path(m.ID, metaFile)
	f, err := os.OpenFile(name+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(name+".new", name); err != nil {
		return err
	}
	return syncDir(s.path(m.ID))
}

// doom says on the disk that the sandbox is being destroyed, so that a restart goes on with it and nobody resumes what is half
// deleted. It may be called again.
func (s *store) doom(id string) error {
	err := os.Rename(s.path(id, metaFile), s.path(id, doomedFile))
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Stat(s.path(id, doomedFile))
	}
	if err != nil {
		return err
	}
	return syncDir(s.path(id))
}

// remove deletes the workspace, then the label, then the directory: as long as anything is left, so is the label.
func (s *store) remove(id string) error {
	entries, err := os.ReadDir(s.path(id))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if e.Name() == metaFile || e.Name() == doomedFile {
			continue
		}
		if err := rmtree.Remove(s.path(id), e.Name()); err != nil {
			return err
		}
	}
	if err := rmtree.Remove(s.dir, id); err != nil {
		return err
	}
	return syncDir(s.dir)
}

// ownerOf returns the uid that a path belongs to, 0 if there is none.
func ownerOf(path string) uint32 {
	fi, err := os.Lstat(path)
	if err != nil {
		return 0
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return st.Uid
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
