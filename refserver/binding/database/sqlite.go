package database

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"modernc.org/sqlite"
)

// Codes of SQLite's errors.
const (
	sqliteCorrupt = 11
	sqliteNotADB  = 26
)

// The settings of each connection.
//
// With a write-ahead log, a commit appends to a second file; a cut or a copy in the middle of it ends at the last commit that is
// whole. Only when the log is moved into the main file do the two have to fit each other, so that happens as rarely as can be: at
// 32 MiB, and when the last connection is closed. FULL has each commit on the disk before it returns.
var sqliteSettings = []string{"busy_timeout(30000)", "journal_mode(WAL)", "synchronous(FULL)", "wal_autocheckpoint(8192)"}

func openSQLite(ctx context.Context, path string, cfg Config) (*Store, error) {
	path, err := sqlitePath(path)
	if err != nil {
		return nil, err
	}
	if err := makeFile(path); err != nil {
		return nil, fmt.Errorf("database: sqlite: %w", err)
	}
	query := url.Values{"_pragma": sqliteSettings, "_txlock": {"immediate"}}
	connector, err := sqlite.NewConnector((&url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}).String())
	if err != nil {
		return nil, fmt.Errorf("database: sqlite:%s: %w", path, err)
	}
	s := &Store{read: pool(connector, cfg.MaxConns), write: pool(connector, 1), dialect: dialect{
		name:  "sqlite:" + path,
		items: `IN (SELECT value FROM json_each($3))`,
		say:   func(err error) error { return sayDamaged(path, err) },
	}}
	if err := s.whole(ctx); err != nil {
		_ = s.Close() // what matters is why it cannot be used
		return nil, s.failed("open", err)
	}
	return s.ready(ctx, cfg.Logger)
}

// sqlitePath returns the path that a URL names. A relative one would mean another file for each directory that a server is started
// in.
func sqlitePath(path string) (string, error) {
	if strings.HasPrefix(path, "//") && !strings.HasPrefix(path, "///") {
		return "", fmt.Errorf("database: sqlite:%s names a host: write sqlite:/PATH", path)
	}
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("database: sqlite:%s is not an absolute path", path)
	}
	return filepath.Clean(path), nil
}

// makeFile makes an empty file, which is an empty database, for this user alone. SQLite gives its other files the same mode. A file
// that exists is not even opened: closing it would drop the locks that this process has on it.
func makeFile(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil // by another process, just now
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// whole looks for damage: a copy that was taken while the log was moved into the file may have some.
func (s *Store) whole(ctx context.Context) error {
	var found string
	if err := s.write.QueryRowContext(ctx, `PRAGMA integrity_check(1)`).Scan(&found); err != nil {
		return err
	}
	if found != "ok" {
		return &damage{found}
	}
	return nil
}

// damage is what an integrity check has found.
type damage struct{ found string }

func (d *damage) Error() string { return d.found }

// sayDamaged adds to an error that comes of a damaged file which file it is and what to do.
func sayDamaged(path string, err error) error {
	code := 0
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		code = e.Code() & 0xff
	}
	if _, ok := errors.AsType[*damage](err); !ok && code != sqliteCorrupt && code != sqliteNotADB {
		return err
	}
	return fmt.Errorf("%w; the file is damaged, or is no database: move %s and the files %[2]s-wal and %[2]s-shm away "+
		"(or put a backup in their place) and start again; sandboxes and processes go on, "+
		"and only processes of old runners have to be looked up by their runner's ids", err, path)
}
