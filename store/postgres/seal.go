package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/codec"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/store/statements"
)

// Package encryption encrypts an agent's settings and properties, an endpoint's signing secrets,
// the store's own keys, and the values of packages kv and record. A check value in table meta
// detects a wrong key at open, so that replicas cannot run with different keys.

// openSealer checks the key against the database. A database without a check value that is given a
// key gets one. What was stored plain is sealed afterwards, by sealRest.
func openSealer(ctx context.Context, tx pgx.Tx, key []byte) (encryption.Sealer, error) {
	var check []byte
	err := tx.QueryRow(ctx, "SELECT value FROM meta WHERE key = 'seal'").Scan(&check)
	switch {
	case errors.Is(err, pgx.ErrNoRows) && len(key) == 0:
		return encryption.Sealer{}, nil
	case errors.Is(err, pgx.ErrNoRows):
		s, check, err := encryption.First(key)
		if err != nil {
			return encryption.Sealer{}, err
		}
		_, err = tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ('seal', $1), ('"+sealingMark+"', '')", check)
		return s, err
	case err != nil:
		return encryption.Sealer{}, err
	}
	return encryption.Check(key, check)
}

// sealingMark is a key in table meta. It is there as long as something may not be sealed yet.
const sealingMark = "sealing"

// sealRest seals what was stored before there was a key, a few rows in each transaction. Other
// servers go on meanwhile, and may read sealed and plain rows. If a server is killed, the next one
// that starts seals the rest. In the end the tables accept nothing plain any more: a replica that
// runs on without the key can neither read sealed rows nor store plain ones beside them.
func (s *Store) sealRest(ctx context.Context, conn *pgx.Conn) error {
	var left bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM meta WHERE key = $1)", sealingMark).Scan(&left); err != nil || !left {
		return err
	}
	all := func() error {
		secret := func(context.Context, pgx.Tx, encryption.Of) (encryption.Key, error) { return s.sealer.Secret(), nil }
		for _, t := range sealedTables("= 0") {
			if _, err := t.seal(ctx, conn, s.sealer, secret); err != nil {
				return err
			}
		}
		return nil
	}
	if err := all(); err != nil {
		return err
	}
	// An empty blob, such as the secrets of a deleted endpoint, is not a secret. Without NOT VALID
	// the table would be locked while all of it is read.
	for table, column := range sealedColumns {
		sql := fmt.Sprintf("ALTER TABLE %s ADD CONSTRAINT %[1]s_sealed CHECK (length(%[2]s) = 0 OR get_byte(%[2]s, 0) <> 0) NOT VALID", table, column)
		if err := again(ctx, func() error { _, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); return err }); err != nil && !pg.Exists(err) {
			return err
		}
	}
	if err := all(); err != nil { // what other servers stored before the constraints
		return err
	}
	for table := range sealedColumns {
		sql := fmt.Sprintf("ALTER TABLE %s VALIDATE CONSTRAINT %[1]s_sealed", table)
		if err := again(ctx, func() error { _, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); return err }); err != nil {
			return err
		}
	}
	_, err := conn.Exec(ctx, "DELETE FROM meta WHERE key = $1", sealingMark)
	return err
}

var sealedColumns = map[string]string{"agent": "settings", "endpoint": "secrets", "kv": "body", "record": "body"}

// sealPause is the time between two tries to get rows that another server has locked.
const sealPause = 100 * time.Millisecond

// again runs fn until no other server's locks stop it. It holds no locks between the tries.
func again(ctx context.Context, fn func() error) error {
	for try := 1; ; try++ {
		err := fn()
		if !pg.Transient(err) && !pg.LockedOut(err) || pg.Unsupported(err) && try == pg.MaxTries {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(fault.Ended(ctx), err)
		case <-time.After(sealPause):
		}
	}
}

// sealedTable describes how the values of a table are read and written back that are to be sealed,
// a few at a time, since they may be large and many.
type sealedTable struct {
	kind string // of the owners, see encryption.Owner
	// get selects and locks the next such rows after a key, in the key's order: project and caller,
	// the owner's names, the value, the row's key.
	get   string
	set   string // writes the value $1 to the row with the key in $2 and following
	first []any  // a key before all rows
	body  bool   // the value is a packed body, which only data keys seal
}

// sealedTables returns the tables of values. is compares the byte that says how a value is stored,
// for those that are to be sealed; see package encryption.
func sealedTables(is string) []sealedTable {
	return []sealedTable{
		{
			kind: "agent",
			get: "SELECT a.project, " + callerOf("a.no") + ", ARRAY[a.project, a.id], a.settings, a.no FROM agent a WHERE a.no > $1 AND " + stored("a.settings", is) +
				" ORDER BY a.no LIMIT 200 FOR UPDATE OF a",
			set: "UPDATE agent SET settings = $1 WHERE no = $2", first: []any{int64(-1)},
		},
		{
			kind: "endpoint",
			get:  "SELECT project, '', ARRAY[id], secrets, no FROM endpoint WHERE no > $1 AND id IS NOT NULL AND " + stored("secrets", is) + " ORDER BY no LIMIT 200 FOR UPDATE",
			set:  "UPDATE endpoint SET secrets = $1 WHERE no = $2", first: []any{int64(-1)},
		},
		{
			kind: "kv",
			get: `SELECT coalesce(a.project, k.project), '', ARRAY[coalesce(a.project, k.project), coalesce(a.id, ''), k.key], k.body, k.agent_no, k.project, k.key
				FROM kv k LEFT JOIN agent a ON a.no = k.agent_no
				WHERE (k.agent_no, k.project, k.key) > ($1, $2, $3) AND (k.agent_no = 0 OR a.no IS NOT NULL) AND ` + stored("k.body", is) +
				" ORDER BY k.agent_no, k.project, k.key LIMIT 32 FOR UPDATE OF k",
			set: "UPDATE kv SET body = $1 WHERE agent_no = $2 AND project = $3 AND key = $4", first: []any{int64(-1), "", ""},
		},
		{
			kind: "record",
			get: `SELECT s.project, s.user_id, ARRAY[s.project, s.name, s.user_id, r.id], r.body, r.space_no, r.id
				FROM record r JOIN record_space s ON s.no = r.space_no WHERE (r.space_no, r.id) > ($1, $2) AND ` + stored("r.body", is) +
				" ORDER BY r.space_no, r.id LIMIT 32 FOR UPDATE OF r",
			set: "UPDATE record SET body = $1, words = NULL WHERE space_no = $2 AND id = $3", first: []any{int64(-1), ""},
		},
		{
			kind: "key",
			get:  "SELECT '', '', ARRAY[substr(key, 5)], value, key FROM meta WHERE key LIKE 'key %' AND key > $1 AND " + stored("value", is) + " ORDER BY key LIMIT 200 FOR UPDATE",
			set:  "UPDATE meta SET value = $1 WHERE key = $2", first: []any{""},
		},
	}
}

// stored is a condition on a value that is not empty: how it is stored.
func stored(column, is string) string {
	return "length(" + column + ") > 0 AND get_byte(" + column + ", 0) " + is
}

// callerOf selects the caller of an agent, by the tag by which the agent is found.
func callerOf(agentNo string) string {
	return "coalesce((SELECT g.value FROM agent_tag g WHERE g.agent_no = " + agentNo + " AND g.name = ''), '')"
}

// seal seals the rows of a table and returns how many there were. keyOf returns the key for an
// owner.
func (t sealedTable) seal(ctx context.Context, conn *pgx.Conn, s encryption.Sealer, keyOf func(context.Context, pgx.Tx, encryption.Of) (encryption.Key, error)) (n int, err error) {
	for at := t.first; at != nil; {
		var next []any
		sealed := 0
		err := again(ctx, func() error {
			return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) (err error) {
				next, sealed, err = t.sealSome(ctx, tx, s, at, keyOf)
				return err
			})
		})
		if err != nil {
			return n, err
		}
		at, n = next, n+sealed
	}
	return n, nil
}

// sealSome seals the next rows. It returns the key of the last one, nil if there was none, and how
// many there were.
func (t sealedTable) sealSome(ctx context.Context, tx pgx.Tx, s encryption.Sealer, at []any, keyOf func(context.Context, pgx.Tx, encryption.Of) (encryption.Key, error)) (next []any, n int, err error) {
	list, err := pg.Collect(ctx, tx, func(row pgx.CollectableRow) ([]any, error) { return row.Values() }, t.get, at...)
	if err != nil || len(list) == 0 {
		return nil, 0, err
	}
	b := &pgx.Batch{}
	for _, row := range list {
		project, _ := row[0].(string)
		user, _ := row[1].(string)
		parts, okOwner := row[2].([]any)
		value, okValue := row[3].([]byte)
		if !okOwner || !okValue {
			return nil, 0, codec.ErrUnreadable
		}
		names := make([]string, len(parts))
		for i, part := range parts {
			name, _ := part.(string)
			names[i] = pg.Shown(name)
		}
		key, err := keyOf(ctx, tx, statements.KeyOf(pg.Shown(project), pg.Shown(user)))
		if err != nil {
			return nil, 0, err
		}
		owner := encryption.Owner(t.kind, names...)
		if !t.body {
			if value, err = s.Open(value, owner); err != nil {
				return nil, 0, err
			}
		}
		next = row[4:]
		b.Queue(t.set, append([]any{key.Seal(value, owner)}, next...)...)
	}
	return next, len(list), tx.SendBatch(ctx, b).Close()
}
