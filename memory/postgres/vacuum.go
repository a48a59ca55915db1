package postgres

import (
	"context"
	"regexp"
	"slices"

	"github.com/jackc/pgx/v5"
)

var createTable = regexp.MustCompile(`(?m)^CREATE TABLE (?:IF NOT EXISTS )?(\w+)`)

// tableNames returns the names of all tables that any migration created. Some may have been dropped
// since.
func tableNames() ([]string, error) {
	steps, err := migrations()
	var out []string
	for _, sql := range steps {
		for _, m := range createTable.FindAllStringSubmatch(sql, -1) {
			out = append(out, m[1])
		}
	}
	slices.Sort(out)
	return slices.Compact(out), err
}

// Vacuum runs VACUUM (ANALYZE) on each table of this program. The tables stay in use meanwhile. It
// returns the size of the tables and their indexes in bytes, before and after.
func (s *Store) Vacuum(ctx context.Context) (before, after int64, err error) {
	names, err := tableNames()
	if err != nil {
		return 0, 0, err
	}
	if s.closed.Load() {
		return 0, 0, errClosed()
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return 0, 0, s.failed(ctx, err, "compact")
	}
	defer conn.Release()
	size := func(n *int64) error {
		return conn.QueryRow(ctx, `SELECT coalesce(sum(pg_total_relation_size(t.oid) + coalesce((SELECT sum(pg_total_relation_size(i.inhrelid)) FROM pg_inherits i WHERE i.inhparent = t.oid), 0)), 0)::bigint
			FROM (SELECT to_regclass(n)::oid AS oid FROM unnest($1::text[]) n) t WHERE t.oid IS NOT NULL`, names).Scan(n)
	}
	err = size(&before)
	for _, name := range names {
		var there bool
		if err == nil {
			err = conn.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", name).Scan(&there)
		}
		if err == nil && there {
			_, err = conn.Exec(ctx, "VACUUM (ANALYZE) "+pgx.Identifier{name}.Sanitize(), pgx.QueryExecModeSimpleProtocol)
		}
	}
	if err == nil {
		err = size(&after)
	}
	return before, after, s.failed(ctx, err, "compact")
}
