package database

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	"go.uber.org/zap"
)

// The steps from an empty database to the current schema, in the order of their names. What was released is never changed; the
// next version is a new file.
//
//go:embed migrations/*.sql
var migrations embed.FS

// steps returns the statements of each step. The schema's version is how many were taken.
func steps() ([]string, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql") // in lexical order
	if err != nil {
		return nil, err
	}
	all := make([]string, 0, len(names))
	for _, name := range names {
		text, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, string(text))
	}
	return all, nil
}

// querier is a database or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// version returns the version of the schema.
func (s *Store) version(ctx context.Context, q querier) (v int, err error) {
	err = q.QueryRowContext(ctx, `SELECT COALESCE(MAX(version), 0) FROM keepwell_schema`).Scan(&v)
	return v, err
}

// migrate brings the schema up to date. Where it is, that takes one read, and no right to change tables.
func (s *Store) migrate(ctx context.Context, log *zap.Logger) error {
	steps, err := steps()
	if err != nil {
		return s.failed("migrate", err)
	}
	v, err := s.version(ctx, s.read)
	if err == nil && v == len(steps) {
		return nil
	}
	if err != nil || v < len(steps) { // an error is most likely that there is no such table; if it is worse, what follows tells
		err = s.transaction(ctx, func(tx *sql.Tx) error { v, err = s.upgrade(ctx, tx, steps); return err })
	}
	if err != nil {
		return s.failed("migrate", err)
	}
	if v > len(steps) {
		return fmt.Errorf("database: %s: its schema has version %d, and this program knows none above %d: start a newer one",
			s.name, v, len(steps))
	}
	log.Info("the schema of the binding store is up to date", zap.String("store", s.name), zap.Int("version", len(steps)))
	return nil
}

// upgrade takes the steps that the schema lacks, while no other process can. It returns the version that was found.
func (s *Store) upgrade(ctx context.Context, tx *sql.Tx, steps []string) (int, error) {
	for _, statement := range []string{s.lock, `CREATE TABLE IF NOT EXISTS keepwell_schema (version BIGINT PRIMARY KEY)`} {
		if statement == "" {
			continue
		}
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return 0, err
		}
	}
	v, err := s.version(ctx, tx)
	if err != nil {
		return 0, err
	}
	for n := v; n < len(steps); n++ {
		if _, err := tx.ExecContext(ctx, steps[n]); err != nil {
			return v, fmt.Errorf("step %d: %w", n+1, err)
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO keepwell_schema (version) VALUES ($1)`, n+1); err != nil {
			return v, fmt.Errorf("step %d: %w", n+1, err)
		}
	}
	return v, nil
}
