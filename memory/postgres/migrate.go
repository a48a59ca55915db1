package postgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/fault"
)

//go:embed schema/*.sql
var schemaFiles embed.FS

// migrations gives the schema's steps; the one with number n is at n-1. Their files are numbered from 0001 without a gap.
func migrations() ([]string, error) {
	names, err := fs.Glob(schemaFiles, "schema/*.sql")
	if err != nil {
		return nil, err
	}
	var out []string
	for i, name := range names { // Glob sorts
		number, _, _ := strings.Cut(strings.TrimPrefix(name, "schema/"), "_")
		if n, err := strconv.Atoi(number); err != nil || n != i+1 {
			return nil, fmt.Errorf("%s is not migration %d", name, i+1)
		}
		b, err := schemaFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		out = append(out, string(b))
	}
	return out, nil
}

// migrationLock is the number of the advisory lock under which one replica at a time looks at the schema: "hear" in ASCII. Where a database
// has no such locks, the number's primary key in table heardlog_schema makes the second of two fail, and it looks again.
const migrationLock = 0x68656172

// worksFrom is the oldest schema whose programs do right on the newest: a step that adds indexes, tables, or columns with defaults leaves it, any other sets it to its own number. It stands in
// table meta, so that a program that is taken back after an upgrade knows that it may serve. (Programs from before it look only at the number.)
const (
	worksFrom = 5
	worksMark = "works_from"
)

// newer refuses a database with steps that this program does not know, unless programs of its own schema do right on it.
func newer(ctx context.Context, tx pgx.Tx, have, known int) error {
	var from []byte
	err := tx.QueryRow(ctx, "SELECT value FROM meta WHERE key = '"+worksMark+"'").Scan(&from)
	if err != nil && !noRows(err) {
		return err
	}
	if n, err := strconv.Atoi(string(from)); err == nil && n <= known {
		return nil
	}
	return fault.New(fault.Invalid, "the database has schema %d and this program knows schemas up to %d: it was written by a newer version; use that one or a newer one", have, known)
}

// migrate brings the schema up to this binary's, all in one transaction, and settles the key of the secrets.
func (s *Store) migrate(ctx context.Context, conn *pgx.Conn, key []byte) error {
	steps, err := migrations()
	if err != nil {
		return err
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()        // after a commit it does nothing
	if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = 0"); err != nil { // another replica's migration may take its time
		return err
	}
	err = pgx.BeginFunc(ctx, tx, func(part pgx.Tx) error { // a savepoint: some databases refuse
		_, err := part.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrationLock))
		return err
	})
	if err != nil && !unsupported(err) {
		return err
	}
	// Only who changes the schema needs the right to: whoever serves one that is up to date may have less.
	var there bool
	if err := tx.QueryRow(ctx, "SELECT to_regclass('heardlog_schema') IS NOT NULL").Scan(&there); err != nil {
		return err
	}
	if !there {
		if _, err := tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS heardlog_schema (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())"); err != nil {
			return err
		}
	}
	have := 0
	if err := tx.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM heardlog_schema").Scan(&have); err != nil {
		return err
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
		if _, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ('"+worksMark+"', $1) ON CONFLICT (key) DO UPDATE SET value = excluded.value", []byte(strconv.Itoa(worksFrom))); err != nil {
			return err
		}
	}
	if s.sealer, err = openSealer(ctx, tx, key); err != nil {
		return err
	}
	return tx.Commit(ctx)
}
