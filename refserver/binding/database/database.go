// Package database is a binding.Store in a database: a SQLite file for one machine, PostgreSQL where replicas share it.
//
// It prevents two faults. A table in the memory of a server is forgotten by its restart, and with it every process whose runner
// knows it by another id; a table that each replica has for itself answers differently depending on which one is asked. Here a
// binding is on the disk when Bind returns, and of two servers that bind one id at once, exactly one is told that it did.
//
// Both databases run the same statements on the same tables, which Open makes and brings up to date. Nothing is kept but ids and
// times.
package database

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/refserver/binding"
)

// startTime bounds Open, which may have to wait for another process that changes the schema.
const startTime = 30 * time.Second

// Config holds the optional settings of a Store.
type Config struct {
	MaxConns int         // connections to PostgreSQL, and readers of a SQLite file besides its one writer; 0: 4
	Logger   *zap.Logger // is told when the schema was changed; nil: nobody
}

// Store is a binding.Store. It is made by Open and safe for concurrent use. The deadline of a call's context bounds the call, also
// where the database accepts it and does not answer.
type Store struct {
	read, write *sql.DB // the same one, unless the database has one writer at a time
	dialect
}

// dialect is what differs between the databases.
type dialect struct {
	name  string            // for errors; no password in it
	lock  string            // the statement that makes other processes wait until the end of a transaction; "": every writing one does
	items string            // says that what is before it is an element of a JSON array, the third argument
	say   func(error) error // makes an error of the driver one for people
	again func(error) bool  // says that a call is worth repeating at once, on another connection
	tries int               // how often at most
}

var _ binding.Store = (*Store)(nil)

// Open opens the database of a URL, sqlite:/PATH or postgres://…, and brings its schema up to date; a file
// that does not exist is made, for this user alone. Several processes may do so at once. It fails, and says why, where the database
// cannot be reached, is damaged, or has a schema of a newer version. No error has the URL's password in it.
func Open(ctx context.Context, url string, cfg Config) (*Store, error) {
	if cfg.MaxConns < 0 {
		panic(fmt.Sprintf("database: MaxConns is %d, must not be negative", cfg.MaxConns))
	}
	if cfg.MaxConns == 0 {
		cfg.MaxConns = 4
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	scheme, rest, _ := strings.Cut(url, ":")
	switch scheme {
	case "sqlite":
		return openSQLite(ctx, rest, cfg)
	case "postgres", "postgresql":
		return openPostgres(ctx, url, cfg)
	}
	return nil, errors.New("database: the URL begins with neither sqlite: nor postgres://") // it is not shown, it may have a password
}

// pool returns a database of at most n connections, which stay open.
func pool(c driver.Connector, n int) *sql.DB {
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db
}

// ready brings the schema up to date and returns s, or closes it.
func (s *Store) ready(ctx context.Context, log *zap.Logger) (*Store, error) {
	if err := s.migrate(ctx, log); err != nil {
		_ = s.Close() // what matters is why it cannot be used
		return nil, err
	}
	return s, nil
}

// Ping implements binding.Store. It asks for a table, so that a database without ours is found out.
func (s *Store) Ping(ctx context.Context) error {
	return s.do("ping", func() error {
		_, err := s.version(ctx, s.read)
		return err
	})
}

// Close implements binding.Store.
func (s *Store) Close() error {
	return s.failed("close", errors.Join(s.read.Close(), s.write.Close()))
}

// failed names the database and what was asked of it in err.
func (s *Store) failed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("database: %s: %s: %w", s.name, what, s.say(err))
}

// do asks, and asks again where only the connection was to blame. Everything that a Store does can be repeated.
func (s *Store) do(what string, ask func() error) error {
	err := ask()
	for n := 1; n < s.tries && err != nil && s.again(err); n++ {
		err = ask()
	}
	return s.failed(what, err)
}
