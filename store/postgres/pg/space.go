package pg

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// spaceEvery is how often Space tries again what has succeeded, unless the database has complained
// meanwhile.
const spaceEvery = 10 * time.Second

// errUndo ends a transaction that is not to be kept.
var errUndo = errors.New("undo")

// Space returns an error if there is no room for new rows where the messages are: it makes a table
// with one row there, and takes it back. A full disk lets small changes pass as long as there is
// room in the files that exist. Without the right to make tables it returns nil.
func (d *DB) Space(ctx context.Context) error {
	if time.Since(time.Unix(0, d.grew.Load())) < spaceEvery {
		return nil
	}
	ctx, leave, err := d.Enter(ctx, true)
	if err != nil {
		return err
	}
	defer leave()
	// A name of its own, since nothing else may wait for its lock, on a standby either.
	name := pgx.Identifier{"heardlog_probe_" + strings.ToLower(rand.Text())}.Sanitize()
	err = d.Begin(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SELECT set_config('default_tablespace', coalesce((SELECT t.spcname FROM pg_class c JOIN pg_tablespace t ON t.oid = c.reltablespace WHERE c.oid = to_regclass('message')), ''), true);
			CREATE TABLE `+name+` (n bigint); INSERT INTO `+name+` VALUES (1)`)
		if err == nil {
			err = errUndo
		}
		return err
	})
	if errors.Is(err, errUndo) || Refused(err) && !outOfResources(err) {
		d.grew.Store(time.Now().UnixNano())
		return nil
	}
	return d.Failed(ctx, err, "see whether tables can grow")
}
