package database_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keepwell-go/keepwell/refserver/binding"
	"github.com/keepwell-go/keepwell/refserver/binding/database"
	"github.com/keepwell-go/keepwell/refserver/internal/postgrestest"
)

// hides fails the test if an error, as all of its parts print it, has a secret in it.
func hides(t *testing.T, err error, secret string) {
	t.Helper()
	for _, text := range []string{fmt.Sprint(err), fmt.Sprintf("%+v", err), fmt.Sprintf("%q", err)} {
		for _, form := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret)} {
			if err == nil || strings.Contains(text, form) {
				t.Errorf("the error is %s", text)
			}
		}
	}
}

func TestAServerThatGoesAwayIsAnErrorUntilItIsBack(t *testing.T) {
	if os.Getenv(postgrestest.Variable) != "" {
		t.Skip("the server that " + postgrestest.Variable + " names is not this test's to stop")
	}
	server, err := postgrestest.New(t.Context())
	if err != nil {
		postgrestest.SkipIfMissing(t, err)
	}
	t.Cleanup(func() { must(t, server.Remove()) })
	logs, seen := observer.New(zap.DebugLevel)
	s, err := database.Open(t.Context(), server.URL(), database.Config{Logger: zap.New(logs)})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	must(t, s.Bind(t.Context(), box, "p", "minted"))
	for range 2 {
		must(t, server.Stop())
		for range 10 { // more often than there are connections
			_, err := s.Bound(t.Context(), box, "p")
			hides(t, err, server.Password)
		}
		err := s.Bind(t.Context(), box, "p", "minted")
		if hides(t, err, server.Password); errors.Is(err, binding.ErrConflict) {
			t.Errorf("a server that is not there says %v", err)
		}
		hides(t, s.Ping(t.Context()), server.Password)
		_, err = database.Open(t.Context(), server.URL(), database.Config{})
		hides(t, err, server.Password)

		must(t, server.Start(t.Context()))
		if got, err := s.Bound(t.Context(), box, "p"); err != nil || got != "minted" {
			t.Errorf("after the server is back, p is bound to %q, %v", got, err)
		}
	}
	for _, entry := range seen.All() {
		if strings.Contains(fmt.Sprint(entry.Message, entry.ContextMap()), server.Password) {
			t.Errorf("logged: %v %v", entry.Message, entry.ContextMap())
		}
	}
}

// All connections of the pool are broken by a restart, and none of them may cost a caller an error.
func TestARestartBetweenTwoCallsIsNotNoticed(t *testing.T) {
	base := postgresURL(t)
	s := open(t, base)
	admin := raw(t, base)
	for range 5 {
		done := make(chan error, 4)
		for range cap(done) {
			go func() { done <- s.Ping(t.Context()) }()
		}
		for range cap(done) {
			must(t, <-done)
		}
		_, err := admin.ExecContext(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE application_name = 'keepwell' AND pid <> pg_backend_pid()`)
		must(t, err)
		must(t, s.Bind(t.Context(), box, "p", "minted"))
	}
}

func TestNoErrorOfOpenShowsThePassword(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	silent := ln.Addr().String() // accepts, and never answers
	defer ln.Close()
	const secret = "s3cr3t-Wörd"
	for name, c := range map[string]struct{ url, want string }{
		"nobody there":   {"postgres://me:" + url.PathEscape(secret) + "@127.0.0.1:1/db", "refused"},
		"no answer":      {"postgres://me:" + url.PathEscape(secret) + "@" + silent + "/db", silent},
		"as a parameter": {"postgres://me@127.0.0.1:1/db?password=" + url.QueryEscape(secret), "refused"},
		"bad port":       {"postgres://me:" + secret + "@host:port/db", "the URL cannot be read"},
		"bad escape":     {"postgres://me:" + secret + "%zz@host/db", "the URL cannot be read"},
		"bad setting":    {"postgres://me:" + secret + "@host/db?sslmode=maybe", "the URL cannot be read"},
		"bad scheme":     {"postgresq://me:" + secret + "@host/db", "neither sqlite: nor postgres://"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := database.Open(ctx, c.url, database.Config{})
		cancel()
		if hides(t, err, secret); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v, want it to say %q", name, err, c.want)
		}
	}
}

func TestARefusedPasswordIsAnErrorThatDoesNotShowIt(t *testing.T) {
	u, err := url.Parse(postgresURL(t))
	must(t, err)
	u.User = url.UserPassword(u.User.Username(), "not-the-pass")
	_, err = database.Open(t.Context(), u.String(), database.Config{})
	if err == nil || strings.Contains(err.Error(), "not-the-pass") {
		t.Errorf("a wrong password returned %v", err)
	}
}

func TestACallEndsWithItsContextWhereTheDatabaseDoesNot(t *testing.T) {
	base := postgresURL(t)
	s := open(t, base)
	tx, err := raw(t, base).BeginTx(t.Context(), nil)
	must(t, err)
	_, err = tx.ExecContext(t.Context(), "LOCK TABLE keepwell_bindings")
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Bound(ctx, box, "p"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with the table locked, bound returned %v", err)
	}
	must(t, tx.Rollback())
	must(t, s.Bind(t.Context(), box, "p", "minted"))
}

func TestAnUpToDateSchemaNeedsNoRightToChangeIt(t *testing.T) {
	base := postgresURL(t)
	open(t, base)
	admin := raw(t, base)
	u, err := url.Parse(base)
	must(t, err)
	schema := u.Query().Get("search_path")
	for _, statement := range []string{
		"CREATE ROLE " + schema + " LOGIN PASSWORD 'word'",
		"GRANT USAGE ON SCHEMA " + schema + " TO " + schema,
		"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA " + schema + " TO " + schema,
	} {
		_, err := admin.ExecContext(t.Context(), statement)
		must(t, err)
	}
	t.Cleanup(func() { execute(t, base, "DROP OWNED BY "+schema+"; DROP ROLE "+schema) })
	u.User = url.UserPassword(schema, "word")
	s := open(t, u.String())
	must(t, s.Bind(t.Context(), box, "p", "minted"))
	_, err = s.Prune(t.Context(), epoch)
	must(t, err)
}
