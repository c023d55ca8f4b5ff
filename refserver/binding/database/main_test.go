package database_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/keepwell-go/keepwell/refserver/binding"
	"github.com/keepwell-go/keepwell/refserver/binding/bindingtest"
	"github.com/keepwell-go/keepwell/refserver/binding/database"
	"github.com/keepwell-go/keepwell/refserver/internal/postgrestest"
)

// TestMain makes the test binary a writer of its own where a test asks for one, and ends the server that tests have shared.
func TestMain(m *testing.M) {
	if task := os.Getenv(taskVariable); task != "" {
		if err := carryOut(task); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue { // each takes hundreds of transactions
		_ = f.Value.Set("15")
	}
	code := m.Run()
	if admin.db != nil {
		_ = admin.db.Close() // the server ends its connections anyway
	}
	if server, err := sharedPostgres(); server != nil && err == nil {
		if err := server.Remove(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	os.Exit(code)
}

// started says whether some test has asked for the server that they share.
var started atomic.Bool

// sharedPostgres starts a server at the first call.
var sharedPostgres = sync.OnceValues(func() (*postgrestest.Server, error) {
	if !started.Load() {
		return nil, nil
	}
	return postgrestest.New(context.Background())
})

var schemas atomic.Int64

// postgresURL returns the URL of an empty schema that no other test uses.
func postgresURL(t testing.TB) string {
	t.Helper()
	base := os.Getenv(postgrestest.Variable)
	if base == "" {
		started.Store(true)
		server, err := sharedPostgres()
		if err != nil {
			postgrestest.SkipIfMissing(t, err)
		}
		base = server.URL()
	}
	name := fmt.Sprintf("keepwell_test_%d_%d", os.Getpid(), schemas.Add(1))
	execute(t, base, "CREATE SCHEMA "+name)
	t.Cleanup(func() { execute(t, base, "DROP SCHEMA "+name+" CASCADE") })
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal("the URL of the test's database cannot be read")
	}
	query := u.Query()
	query.Set("search_path", name)
	u.RawQuery = query.Encode()
	return u.String()
}

// sqliteURL returns the URL of a file that is not there yet.
func sqliteURL(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "bindings.db") }

// kinds are the databases that a Store may be in, with a new place in each.
var kinds = map[string]func(testing.TB) string{"sqlite": sqliteURL, "postgres": postgresURL}

// onEach runs a test on each kind of database.
func onEach(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	for name, newURL := range kinds {
		t.Run(name, func(t *testing.T) { test(t, newURL(t)) })
	}
}

func open(t testing.TB, url string) *database.Store {
	t.Helper()
	s, err := database.Open(context.Background(), url, database.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// raw opens what lies behind a URL, without a Store.
func raw(t testing.TB, url string) *sql.DB {
	t.Helper()
	driver := "pgx"
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		driver, url = "sqlite", path
	}
	db, err := sql.Open(driver, url)
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// admin is what all tests reach their PostgreSQL server by: a connection costs it a process and a password's hashes.
var admin struct {
	once sync.Once
	db   *sql.DB
	err  error
}

func execute(t testing.TB, base, statement string) {
	t.Helper()
	admin.once.Do(func() { admin.db, admin.err = sql.Open("pgx", base) })
	must(t, admin.err)
	_, err := admin.db.Exec(statement)
	must(t, err)
}

func TestADatabaseKeepsTheContract(t *testing.T) {
	onEach(t, func(t *testing.T, _ string) {
		_, kind, _ := strings.Cut(t.Name(), "/")
		bindingtest.Run(t, func(t *testing.T) binding.Store { return open(t, kinds[kind](t)) })
	})
}
