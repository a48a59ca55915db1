package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/memory/seal"
)

// What is sealed (package seal): an agent's settings and properties, an endpoint's signing secrets, the store's own keys, saved conversations, values of working
// memories. A check value in table meta tells a wrong key at open, so that replicas cannot run with different ones.

// openSealer checks the key against the database. One without a check value that is given a key gets one, and everything that was stored
// plain is sealed, in the same transaction, while nobody else writes; a replica that runs on without the key can neither read it then nor store anything plain beside it.
func openSealer(ctx context.Context, tx pgx.Tx, key []byte) (seal.Sealer, error) {
	var check []byte
	err := tx.QueryRow(ctx, "SELECT value FROM meta WHERE key = 'seal'").Scan(&check)
	switch {
	case errors.Is(err, pgx.ErrNoRows) && len(key) == 0:
		return seal.Sealer{}, nil
	case errors.Is(err, pgx.ErrNoRows):
		return sealAll(ctx, tx, key)
	case err != nil:
		return seal.Sealer{}, err
	}
	return seal.Check(key, check)
}

// sealAll seals what is there and leaves the check value.
func sealAll(ctx context.Context, tx pgx.Tx, key []byte) (seal.Sealer, error) {
	s, check, err := seal.First(key)
	if err != nil {
		return seal.Sealer{}, err
	}
	if _, err := tx.Exec(ctx, "LOCK TABLE agent, endpoint, conversation, working, meta IN SHARE ROW EXCLUSIVE MODE"); err != nil && !unsupported(err) {
		return seal.Sealer{}, err
	}
	for _, t := range sealedTables() {
		if err := t.seal(ctx, tx, s); err != nil {
			return seal.Sealer{}, err
		}
	}
	// What is emptied or about to be written, such as the secrets of a deleted endpoint, is no secret.
	for table, column := range map[string]string{"agent": "settings", "endpoint": "secrets", "conversation": "body", "working": "body"} {
		if _, err := tx.Exec(ctx, fmt.Sprintf("ALTER TABLE %s ADD CONSTRAINT %[1]s_sealed CHECK (length(%[2]s) = 0 OR get_byte(%[2]s, 0) <> 0)", table, column)); err != nil {
			return seal.Sealer{}, err
		}
	}
	_, err = tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ('seal', $1)", check)
	return s, err
}

// sealedTable says how blobs of one table are read and written back, some at a time: they may be large, and many.
type sealedTable struct {
	get   string // owner, blob and key of the rows behind a key, in the key's order, at most as many as one may hold in memory
	set   string // the blob, and the row's key
	first []any  // stands in front of every key
}

func sealedTables() []sealedTable {
	return []sealedTable{
		{
			"SELECT 'agent ' || project || ' ' || id, settings, no FROM agent WHERE no > $1 ORDER BY no LIMIT 200",
			"UPDATE agent SET settings = $1 WHERE no = $2", []any{int64(-1)},
		},
		{
			"SELECT 'endpoint ' || id, secrets, no FROM endpoint WHERE no > $1 AND id IS NOT NULL ORDER BY no LIMIT 200",
			"UPDATE endpoint SET secrets = $1 WHERE no = $2", []any{int64(-1)},
		},
		{
			"SELECT 'conversation ' || project || ' ' || id, body, project, id FROM conversation WHERE (project, id) > ($1, $2) ORDER BY project, id LIMIT 32",
			"UPDATE conversation SET body = $1 WHERE project = $2 AND id = $3", []any{"", ""},
		},
		{
			`SELECT 'working ' || a.project || ' ' || a.id || ' ' || w.key, w.body, w.agent_no, w.key FROM working w JOIN agent a ON a.no = w.agent_no
				WHERE (w.agent_no, w.key) > ($1, $2) ORDER BY w.agent_no, w.key LIMIT 32`,
			"UPDATE working SET body = $1 WHERE agent_no = $2 AND key = $3", []any{int64(-1), ""},
		},
		{
			"SELECT key, value, key FROM meta WHERE key LIKE 'key %' AND key > $1 ORDER BY key LIMIT 200",
			"UPDATE meta SET value = $1 WHERE key = $2", []any{""},
		},
	}
}

func (t sealedTable) seal(ctx context.Context, tx pgx.Tx, s seal.Sealer) error {
	for at := t.first; ; {
		rows, err := tx.Query(ctx, t.get, at...)
		if err != nil {
			return err
		}
		list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
		if err != nil || len(list) == 0 {
			return err
		}
		b := &pgx.Batch{}
		for _, row := range list {
			owner, okOwner := row[0].(string)
			stored, okBlob := row[1].([]byte)
			if !okOwner || !okBlob {
				return errBadRow
			}
			plain, err := s.Open(stored, owner)
			if err != nil {
				return err
			}
			at = row[2:]
			b.Queue(t.set, append([]any{s.Seal(plain, owner)}, at...)...)
		}
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
	}
}

func agentOwner(project, id string) string { return "agent " + stored(project) + " " + stored(id) }
func conversationOwner(project, id string) string {
	return "conversation " + stored(project) + " " + stored(id)
}
func keyOwner(name string) string    { return "key " + name }
func endpointOwner(id string) string { return "endpoint " + stored(id) }
