package pg

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// What a transaction sees is on the primary's disk, and not always on its synchronous standby: the
// wait of a commit for the standby may have been given up, or the primary may have been restarted
// during it. A call that acknowledges what it has read therefore commits something behind it.

// hasWritten reports in wrote whether the transaction will wait for the standby when it commits. It
// asks only if the call wants to know.
func (d *DB) hasWritten(ctx context.Context, tx pgx.Tx, wrote *bool) error {
	if !d.standbys.Load() || !memory.CountsCommits(ctx) {
		return nil
	}
	return tx.QueryRow(ctx, "SELECT pg_current_xact_id_if_assigned() IS NOT NULL").Scan(wrote)
}

// Losses counts the times after which another server may have answered.
func (d *DB) Losses() int64 { return d.losses.Load() }

// Durable returns once everything that this server has read since is as safe as what it has
// acknowledged; since is what Losses returned before that. It costs a commit, and nothing where
// commits wait for no standby.
func (d *DB) Durable(ctx context.Context, since int64) error {
	if !d.standbys.Load() {
		return nil
	}
	if _, err := d.proofs.Do(ctx, d.Timeout, struct{}{}); err != nil {
		return err
	}
	if d.losses.Load() != since {
		return fault.New(fault.Unavailable, "the connection to the database was lost meanwhile; repeat the call, which tells whether it has succeeded")
	}
	return nil
}

// prove commits something for calls of Durable.
func (d *DB) prove(ctx context.Context, list []*Question[struct{}]) {
	err := d.Transact(ctx, "make sure that the standby has everything", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE counter SET n = n + 1 WHERE key = 'ping'")
		return err
	})
	for _, q := range list {
		q.Err = err
	}
}
