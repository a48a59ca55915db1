package pg

import (
	"context"
	"time"
)

// backupLock is the number of the advisory lock of Alone.
const backupLock = 0x6865_6172_6261_6b // "hearbak"

// Alone runs f unless another process of this database is running it. A process that is killed
// leaves no lock.
func (d *DB) Alone(ctx context.Context, f func() error) error {
	// A transaction holds the lock, since a session may be another client's next.
	tx, err := d.Pool.Begin(ctx)
	if err != nil {
		return d.Failed(ctx, err, "back up")
	}
	defer func() {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer stop()
		_ = tx.Rollback(ctx) // a transaction that cannot end closes its connection
	}()
	var mine bool
	_, err = tx.Exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = 0")
	if err == nil {
		// Servers of other schemas in the database have locks of their own.
		err = tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock($1 # hashtext(current_schema())::bigint)", int64(backupLock)).Scan(&mine)
	}
	if err != nil || !mine {
		return d.Failed(ctx, err, "back up")
	}
	return f()
}
