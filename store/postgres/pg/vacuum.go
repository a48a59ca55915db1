package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Vacuum runs VACUUM (ANALYZE) on those of the tables that are there. They stay in use meanwhile.
// It returns the size of the tables and their indexes in bytes, before and after.
func (d *DB) Vacuum(ctx context.Context, names []string) (before, after int64, err error) {
	if d.closed.Load() {
		return 0, 0, ErrClosed()
	}
	conn, err := d.Pool.Acquire(ctx)
	if err != nil {
		return 0, 0, d.Failed(ctx, err, "compact")
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
	return before, after, d.Failed(ctx, err, "compact")
}
