package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// Querier is a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Collect runs a query and reads all of its rows.
func Collect[T any](ctx context.Context, q Querier, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

// ReadAll is Collect for a call that only reads.
func ReadAll[T any](ctx context.Context, d *DB, what string, scan pgx.RowToFunc[T], sql string, args ...any) (list []T, err error) {
	err = d.Read(ctx, what, func(ctx context.Context) (err error) {
		list, err = Collect(ctx, d.Pool, scan, sql, args...)
		return err
	})
	return list, err
}

// Each runs a query, and calls fn after each of its rows was read into the variables.
func Each(ctx context.Context, q Querier, into []any, fn func() error, sql string, args ...any) error {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, into, fn)
	return err
}

// Column returns one value of each row.
func Column[R, T any](rows []R, value func(*R) T) []T {
	out := make([]T, len(rows))
	for i := range rows {
		out[i] = value(&rows[i])
	}
	return out
}

// NoRows reports whether a query found nothing.
func NoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
