package pg

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// spaceEvery is how often Space tries again what has succeeded, unless the database has complained
// meanwhile.
const spaceEvery = 10 * time.Second

// errUndo ends a transaction that is not to be kept.
var errUndo = errors.New("undo")

// Space returns an error if the table, which is always empty, cannot grow: it gets a new file with
// one row, which is taken back. A full disk lets small changes pass as long as there is room in the
// files that exist. Without the right to try, and while another server tries, it returns nil.
func (d *DB) Space(ctx context.Context, table string) error {
	if time.Since(time.Unix(0, d.grew.Load())) < spaceEvery {
		return nil
	}
	ctx, leave, err := d.Enter(ctx, true)
	if err != nil {
		return err
	}
	defer leave()
	name := pgx.Identifier{table}.Sanitize()
	err = d.Begin(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "LOCK TABLE "+name+" IN ACCESS EXCLUSIVE MODE NOWAIT; TRUNCATE "+name+"; INSERT INTO "+name+" VALUES (1)")
		if err == nil {
			err = errUndo
		}
		return err
	})
	if errors.Is(err, errUndo) || Refused(err) && !outOfResources(err) || LockedOut(err) {
		d.grew.Store(time.Now().UnixNano())
		return nil
	}
	return d.Failed(ctx, err, "see whether tables can grow")
}
