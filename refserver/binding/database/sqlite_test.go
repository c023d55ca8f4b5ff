package database_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/refserver/binding"
	"github.com/keepwell-go/keepwell/refserver/binding/database"
)

// The state directory may be copied while a server runs. What was bound before the copy began is bound in the copy, whichever file
// of the database is copied first.
func TestACopyThatIsTakenWhileAProcessWritesCanBeUsed(t *testing.T) {
	url := sqliteURL(t)
	path := strings.TrimPrefix(url, "sqlite:")
	c := newChild(t, taskWrite, url, "writer")
	c.ready()
	var written atomic.Int64 // how many it has reported
	drained := make(chan struct{})
	go func() { // ends when the writer is killed
		defer close(drained)
		for c.line() != "" {
			written.Add(1)
		}
	}()
	defer func() {
		must(t, c.cmd.Process.Kill())
		<-drained
		_ = c.cmd.Wait() // it was killed
	}()
	for round := range 8 {
		files := []string{"", "-wal", "-shm"}
		if round%2 == 1 {
			slices.Reverse(files)
		}
		dir := t.TempDir()
		for was := written.Load(); written.Load() < was+10; { // it goes on writing
			_, err := os.Stat(path)
			must(t, err)
		}
		before := written.Load()
		for _, suffix := range files {
			copyFile(t, path+suffix, filepath.Join(dir, "bindings.db"+suffix))
		}
		s := open(t, "sqlite:"+filepath.Join(dir, "bindings.db"))
		for i := range before {
			id := fmt.Sprint("p", i)
			if got, err := s.Bound(t.Context(), box, id); err != nil || got != "minted-"+id {
				t.Fatalf("copy %d: %s is bound to %q, %v; %d were reported before", round, id, got, err, before)
			}
		}
		must(t, s.Bind(t.Context(), box, "new", "minted"))
	}
}

// copyFile copies a page at a time.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	must(t, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o600)
	must(t, err)
	_, err = io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{in}, make([]byte, 4096))
	must(t, errors.Join(err, out.Close()))
}

func TestADamagedFileIsNamedWithAWayOut(t *testing.T) {
	url := sqliteURL(t)
	path := strings.TrimPrefix(url, "sqlite:")
	s, err := database.Open(t.Context(), url, database.Config{})
	must(t, err)
	for i := range 300 {
		must(t, s.Bind(t.Context(), box, fmt.Sprint("p", i), fmt.Sprint("minted-", i)))
	}
	must(t, s.Close())
	good, err := os.ReadFile(path)
	must(t, err)
	for name, data := range map[string][]byte{
		"another kind of file": []byte(strings.Repeat("not a database\n", 1000)),
		"cut in the middle":    good[:len(good)/2],
		"a page of another":    slices.Concat(good[:8192], good[12288:16384], good[12288:]),
		"zeros in the middle":  slices.Concat(good[:8192], make([]byte, 4096), good[12288:]),
	} {
		must(t, os.WriteFile(path, data, 0o600))
		_, err := database.Open(t.Context(), url, database.Config{})
		way := "damaged, or is no database: move " + path + " and the files " + path + "-wal and " + path + "-shm away"
		if err == nil || !strings.Contains(err.Error(), way) {
			t.Errorf("%s: opening it returned %v", name, err)
		}
	}
	must(t, os.Remove(path))
	open(t, url) // the way out
}

func TestOnlyAnAbsolutePathNamesAFile(t *testing.T) {
	for url, want := range map[string]string{
		"sqlite:bindings.db":       "not an absolute path",
		"sqlite::memory:":          "not an absolute path",
		"sqlite:":                  "not an absolute path",
		"sqlite://host/bindings":   "names a host",
		"sqlite:/no/such/dir/b.db": "no such file or directory",
		"sqlite:" + t.TempDir():    "", // a directory
		"mysql://me:word@host/db":  "neither sqlite: nor postgres://",
	} {
		_, err := database.Open(t.Context(), url, database.Config{})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "database: ") {
			t.Errorf("opening %s returned %v", url, err)
		}
		if strings.Contains(fmt.Sprint(err), "word") {
			t.Errorf("the password is in %v", err)
		}
	}
	dir := filepath.Join(t.TempDir(), `an odd? #dir%41 &`)
	must(t, os.Mkdir(dir, 0o700))
	must(t, open(t, "sqlite://"+filepath.Join(dir, "b.db")).Ping(t.Context()))
	if _, err := os.Stat(filepath.Join(dir, "b.db")); err != nil {
		t.Error(err)
	}
}

func TestTheFilesAreOfTheirOwnerAlone(t *testing.T) {
	url := sqliteURL(t)
	s := open(t, url)
	must(t, s.Bind(t.Context(), box, "p", "minted"))
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(strings.TrimPrefix(url, "sqlite:") + suffix)
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%q has mode %v, %v, want -rw-------", suffix, info.Mode(), err)
		}
	}
}

func TestWhileOneWritesTheOthersReadAndWaitAsLongAsTheyMay(t *testing.T) {
	url := sqliteURL(t)
	s := open(t, url)
	must(t, s.Bind(t.Context(), box, "p", "minted"))
	conn, err := raw(t, url).Conn(t.Context())
	must(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	must(t, err)
	if got, err := s.Bound(t.Context(), box, "p"); err != nil || got != "minted" {
		t.Errorf("beside a writer p is bound to %q, %v", got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Bind(ctx, box, "q", "minted"); err == nil || errors.Is(err, binding.ErrConflict) || ctx.Err() == nil {
		t.Errorf("beside a writer that stays, bind returned %v", err)
	}
	_, err = conn.ExecContext(t.Context(), "COMMIT")
	must(t, err)
	must(t, s.Bind(t.Context(), box, "q", "minted"))
}

func TestLookupsAreAnsweredByAnIndex(t *testing.T) {
	url := sqliteURL(t)
	open(t, url)
	db := raw(t, url)
	for _, query := range database.Lookups {
		rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, "a", "b", `["c"]`)
		must(t, err)
		defer rows.Close()
		var plan []string
		for rows.Next() {
			var id, parent, unused int
			var detail string
			must(t, rows.Scan(&id, &parent, &unused, &detail))
			plan = append(plan, detail)
		}
		const how = "SEARCH keepwell_bindings USING "
		if len(plan) == 0 || !strings.HasPrefix(plan[0], how) || !strings.Contains(plan[0], "(sandbox=? AND instance=? AND ") {
			t.Errorf("%s\nis planned as %q", query, plan)
		}
	}
}
