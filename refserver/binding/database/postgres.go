package database

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// PostgreSQL's connections are closed after a while, so that they follow a server that has moved, and that a burst leaves none behind.
const (
	connLifetime = 30 * time.Minute
	connIdle     = 5 * time.Minute
)

// schemaLock is the advisory lock under which a schema is changed. Nobody else is likely to have chosen it.
const schemaLock = `SELECT pg_advisory_xact_lock(7381249610457213)`

func openPostgres(ctx context.Context, url string, cfg Config) (*Store, error) {
	c, err := pgx.ParseConfig(url)
	if err != nil { // its text may show parts of a password that was not encoded as it should be
		return nil, errors.New("database: the URL cannot be read: write postgres://USER@HOST:PORT/DATABASE, with % encoding in each part")
	}
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "keepwell"
	}
	db := pool(stdlib.GetConnector(*c), cfg.MaxConns)
	db.SetConnMaxLifetime(connLifetime)
	db.SetConnMaxIdleTime(connIdle)
	s := &Store{read: db, write: db, dialect: dialect{
		name:  "postgres://" + net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))) + "/" + c.Database,
		lock:  schemaLock,
		items: `= ANY (ARRAY(SELECT json_array_elements_text($3::json)))`, // an array is looked up in the index, a set is joined,
		say:   func(err error) error { return without(c.Password, err) },
		again: bySomethingElse,
		tries: cfg.MaxConns + 1, // after a restart of the server, each connection of the pool may be broken
	}}
	return s.ready(ctx, cfg.Logger)
}

// Codes of PostgreSQL's errors.
const (
	stopping = "57P"   // how those of a server begin that is being stopped
	deadlock = "40P01" // Prune and Forget may wait for each other's rows; one of them is called off
)

// bySomethingElse says whether a call failed by no fault of its own: a connection that had worked ended, or another call stood in its
// way.
func bySomethingElse(err error) bool {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return false // a new one: the server is not there
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return strings.HasPrefix(e.Code, stopping) || e.Code == deadlock
	}
	for _, end := range []error{io.ErrUnexpectedEOF, io.EOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// hidden is an error whose text had a secret in it.
type hidden struct {
	error
	text string
}

func (h *hidden) Error() string { return h.text }
func (h *hidden) Unwrap() error { return h.error }

// without returns err with the secret taken out of its text. The driver puts none there; this is for the day when it does.
func without(secret string, err error) error {
	if text := err.Error(); secret != "" && strings.Contains(text, secret) {
		return &hidden{err, strings.ReplaceAll(text, secret, "xxxxx")}
	}
	return err
}
