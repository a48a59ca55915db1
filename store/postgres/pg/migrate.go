package pg

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/fault"
)

// migrationLock is the number of the advisory lock under which one replica at a time migrates the
// schema: "hear" in ASCII. In a database without such locks, the primary key of table
// heardlog_schema makes the second of two replicas fail. It then tries again.
const migrationLock = 0x68656172

// worksMark is the key in table meta of Schema.WorksFrom. A program that is rolled back after an
// upgrade knows by it whether it may serve.
const worksMark = "works_from"

// Schema is how a database is set up.
type Schema struct {
	Steps []string // the migrations in their order
	// WorksFrom is the oldest schema whose programs work correctly on the newest one. A migration
	// that adds indexes, tables, or columns with defaults leaves it as it is; any other sets it to
	// its own number.
	WorksFrom int
}

// SchemaVersion returns the number of the database's last migration, 0 for an empty database. It
// fails if the database is from before the first release.
func SchemaVersion(ctx context.Context, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) (int, error) {
	var there bool
	if err := q.QueryRow(ctx, "SELECT to_regclass('heardlog_schema') IS NOT NULL").Scan(&there); err != nil || !there {
		return 0, err
	}
	have := 0
	if err := q.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM heardlog_schema").Scan(&have); err != nil || have == 0 {
		return 0, err
	}
	var released bool
	err := q.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM meta WHERE key = 'released')").Scan(&released)
	if err == nil && !released {
		err = fault.New(fault.Invalid, "the database has schema %d of a build from before the first release, which this program cannot read: "+
			"export it with that build and import the export here, or start with an empty database", have)
	}
	return have, err
}

// newer refuses a database with migrations that this program does not know, unless programs of its
// schema work correctly on it.
func newer(ctx context.Context, tx pgx.Tx, have, known int) error {
	var from []byte
	err := tx.QueryRow(ctx, "SELECT value FROM meta WHERE key = '"+worksMark+"'").Scan(&from)
	if err != nil && !NoRows(err) {
		return err
	}
	if n, err := strconv.Atoi(string(from)); err == nil && n <= known {
		return nil
	}
	return fault.New(fault.Invalid, "the database has schema %d and this program knows schemas up to %d: it was written by a newer version; use that one or a newer one", have, known)
}

// Migrate brings the schema up to its last step in one transaction, in which last is called at the
// end.
func Migrate(ctx context.Context, conn *pgx.Conn, schema Schema, last func(tx pgx.Tx) error) error {
	steps := schema.Steps
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit it does nothing
	// Another replica's migration may take long.
	if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = 0"); err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, tx, func(part pgx.Tx) error { // a savepoint: some databases refuse
		_, err := part.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrationLock))
		return err
	})
	if err != nil && !Unsupported(err) {
		return err
	}
	// A user that serves an up-to-date schema may lack the right to change it.
	have, err := SchemaVersion(ctx, tx)
	if err != nil {
		return err
	}
	if have == 0 {
		if _, err := tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS heardlog_schema (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())"); err != nil {
			return err
		}
	}
	if have > len(steps) {
		if err := newer(ctx, tx, have, len(steps)); err != nil {
			return err
		}
	}
	for i := have; i < len(steps); i++ {
		if _, err := tx.Exec(ctx, steps[i], pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("migration %d: %w", i+1, err)
		}
		if _, err := tx.Exec(ctx, "INSERT INTO heardlog_schema (version) VALUES ($1)", i+1); err != nil {
			return err
		}
	}
	if have < len(steps) {
		if _, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ('"+worksMark+"', $1) ON CONFLICT (key) DO UPDATE SET value = excluded.value", []byte(strconv.Itoa(schema.WorksFrom))); err != nil {
			return err
		}
	}
	if err := last(tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}
