package database

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/refserver/binding"
)

// Every statement that is of one incarnation names it by these two.
const ofRef = `sandbox = $1 AND instance = $2`

// The lookups, each of which one index answers. How publicQuery compares is a dialect's.
const (
	boundQuery  = `SELECT bound FROM keepwell_bindings WHERE ` + ofRef + ` AND id = $3`
	publicQuery = `SELECT bound, id FROM keepwell_bindings WHERE ` + ofRef + ` AND bound `
)

// Begin implements binding.Store.
func (s *Store) Begin(ctx context.Context, st binding.Start) error {
	return s.exec(ctx, "begin", `INSERT INTO keepwell_starts (sandbox, instance, id, at, expires) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT DO NOTHING`, st.Ref.ID, st.Ref.Instance, st.ID, st.At.UnixMilli(), st.Expires.UnixMilli())
}

// Bind implements binding.Store. The statement returns what the id is bound to by then, whoever was first.
func (s *Store) Bind(ctx context.Context, ref backend.Ref, id, bound string) error {
	if bound == "" {
		return errors.New("database: an id cannot be bound to nothing")
	}
	var is string
	err := s.do("bind", func() error {
		return s.write.QueryRowContext(ctx, `INSERT INTO keepwell_bindings AS old (sandbox, instance, id, bound) VALUES ($1, $2, $3, $4)
			ON CONFLICT (sandbox, instance, id) DO UPDATE SET bound = old.bound RETURNING bound`,
			ref.ID, ref.Instance, id, bound).Scan(&is)
	})
	if err == nil && is != bound {
		return fmt.Errorf("%w: %s of sandbox %s", binding.ErrConflict, id, ref.ID)
	}
	return err
}

// End implements binding.Store.
func (s *Store) End(ctx context.Context, ref backend.Ref, id string, at time.Time) error {
	return s.exec(ctx, "end", `UPDATE keepwell_starts SET ended = $4 WHERE `+ofRef+` AND id = $3 AND ended IS NULL`,
		ref.ID, ref.Instance, id, at.UnixMilli())
}

// Bound implements binding.Store.
func (s *Store) Bound(ctx context.Context, ref backend.Ref, id string) (bound string, err error) {
	err = s.do("bound", func() error {
		err := s.read.QueryRowContext(ctx, boundQuery, ref.ID, ref.Instance, id).Scan(&bound)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return bound, err
}

// Public implements binding.Store.
func (s *Store) Public(ctx context.Context, ref backend.Ref, bound []string) (map[string]string, error) {
	if len(bound) == 0 {
		return map[string]string{}, ctx.Err()
	}
	asked, err := json.Marshal(bound)
	if err != nil {
		return nil, s.failed("public", err)
	}
	var public map[string]string
	err = s.do("public", func() error {
		public = make(map[string]string, len(bound))
		return s.rows(ctx, func(rows *sql.Rows) error {
			var id, bound string
			err := rows.Scan(&bound, &id)
			if first, ok := public[bound]; !ok || id < first {
				public[bound] = id
			}
			return err
		}, publicQuery+s.items, ref.ID, ref.Instance, string(asked))
	})
	if err != nil {
		return nil, err
	}
	return public, nil
}

// Prune implements binding.Store.
func (s *Store) Prune(ctx context.Context, cutoff time.Time) (int, error) {
	var n int64
	err := s.do("prune", func() error {
		return s.transaction(ctx, func(tx *sql.Tx) error {
			gone, err := tx.ExecContext(ctx, `DELETE FROM keepwell_starts WHERE expires <= $1 OR ended <= $1`, cutoff.UnixMilli())
			if err != nil {
				return err
			}
			if n, err = gone.RowsAffected(); err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, `DELETE FROM keepwell_bindings AS b WHERE b.bound = b.id AND NOT EXISTS (
				SELECT 1 FROM keepwell_starts AS s WHERE s.sandbox = b.sandbox AND s.instance = b.instance AND s.id = b.id)`)
			return err
		})
	})
	if err != nil {
		return 0, err
	}
	return int(n), nil
}

// Refs implements binding.Store.
func (s *Store) Refs(ctx context.Context) (map[backend.Ref]time.Time, error) {
	var refs map[backend.Ref]time.Time
	err := s.do("refs", func() error {
		refs = map[backend.Ref]time.Time{}
		return s.rows(ctx, func(rows *sql.Rows) error {
			var ref backend.Ref
			var at sql.NullInt64
			err := rows.Scan(&ref.ID, &ref.Instance, &at)
			refs[ref] = time.Time{}
			if at.Valid {
				refs[ref] = time.UnixMilli(at.Int64).UTC()
			}
			return err
		}, `SELECT sandbox, instance, MAX(at) FROM (
			SELECT sandbox, instance, at FROM keepwell_starts
			UNION ALL SELECT DISTINCT sandbox, instance, CAST(NULL AS BIGINT) FROM keepwell_bindings) AS rows GROUP BY sandbox, instance`)
	})
	if err != nil {
		return nil, err
	}
	return refs, nil
}

// Forget implements binding.Store.
func (s *Store) Forget(ctx context.Context, ref backend.Ref) error {
	return s.do("forget", func() error {
		return s.transaction(ctx, func(tx *sql.Tx) error {
			for _, table := range []string{"keepwell_starts", "keepwell_bindings"} {
				if _, err := tx.ExecContext(ctx, `DELETE FROM `+table+` WHERE `+ofRef, ref.ID, ref.Instance); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// exec runs one statement, which is a transaction of its own.
func (s *Store) exec(ctx context.Context, what, statement string, args ...any) error {
	return s.do(what, func() error {
		_, err := s.write.ExecContext(ctx, statement, args...)
		return err
	})
}

// rows calls each for every row of a query.
func (s *Store) rows(ctx context.Context, each func(*sql.Rows) error, query string, args ...any) error {
	rows, err := s.read.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err has what matters
	for rows.Next() {
		if err := each(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// transaction calls f in a transaction that may write, which ends with all of it or with nothing.
func (s *Store) transaction(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		_ = tx.Rollback() // the first error tells more
		return err
	}
	return tx.Commit()
}
