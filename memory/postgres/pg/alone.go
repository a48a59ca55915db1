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
	conn, err := d.Pool.Acquire(ctx)
	if err != nil {
		return d.Failed(ctx, err, "back up")
	}
	defer conn.Release()
	var mine bool
	// Servers of other schemas in the database have locks of their own.
	if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1 # hashtext(current_schema())::bigint)", int64(backupLock)).Scan(&mine); err != nil || !mine {
		return d.Failed(ctx, err, "back up")
	}
	defer func() {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer stop()
		if _, err := conn.Exec(ctx, "SELECT pg_advisory_unlock_all()"); err != nil {
			_ = conn.Conn().Close(ctx) // which gives the lock back
		}
	}()
	return f()
}
