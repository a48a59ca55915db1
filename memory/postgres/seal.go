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
// plain is sealed, in the same transaction; a replica that runs on without the key cannot read it then.
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
	for _, t := range []struct{ get, set string }{
		{"SELECT 'agent ' || project || ' ' || id, no::text, settings FROM agent WHERE no > $1 ORDER BY no LIMIT 500", "UPDATE agent SET settings = $1 WHERE no = $2::bigint"},
		{"SELECT 'endpoint ' || id, no::text, secrets FROM endpoint WHERE no > $1 AND id IS NOT NULL ORDER BY no LIMIT 500", "UPDATE endpoint SET secrets = $1 WHERE no = $2::bigint"},
	} {
		for at := int64(-1 << 62); ; {
			n, last, err := sealSome(ctx, tx, s, t.get, t.set, at)
			if err != nil {
				return seal.Sealer{}, err
			}
			if n == 0 {
				break
			}
			at = last
		}
	}
	// By the row's address, since these have no number; nothing else changes while the migration's lock is held by whom we wait for.
	if _, _, err := sealSome(ctx, tx, s, "SELECT 'conversation ' || project || ' ' || id, project || chr(2) || id, body FROM conversation WHERE $1 < 0",
		"UPDATE conversation SET body = $1 WHERE project || chr(2) || id = $2", -1); err != nil {
		return seal.Sealer{}, err
	}
	if _, _, err := sealSome(ctx, tx, s, `SELECT 'working ' || a.project || ' ' || a.id || ' ' || w.key, w.agent_no || ' ' || w.key, w.body
		FROM working w JOIN agent a ON a.no = w.agent_no WHERE $1 < 0`, "UPDATE working SET body = $1 WHERE agent_no || ' ' || key = $2", -1); err != nil {
		return seal.Sealer{}, err
	}
	if _, _, err := sealSome(ctx, tx, s, "SELECT key, key, value FROM meta WHERE key LIKE 'key %' AND $1 < 0", "UPDATE meta SET value = $1 WHERE key = $2", -1); err != nil {
		return seal.Sealer{}, err
	}
	_, err = tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ('seal', $1)", check)
	return s, err
}

// sealSome seals the blobs that a query gives as owner, key and blob, and gives their number and the last key where it is one.
func sealSome(ctx context.Context, tx pgx.Tx, s seal.Sealer, get, set string, at int64) (n int, last int64, err error) {
	type blob struct {
		Owner, Key string
		Value      []byte
	}
	rows, err := tx.Query(ctx, get, at)
	if err != nil {
		return 0, 0, err
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[blob])
	if err != nil {
		return 0, 0, err
	}
	for _, b := range list {
		plain, err := s.Open(b.Value, b.Owner)
		if err != nil {
			return 0, 0, err
		}
		if _, err := tx.Exec(ctx, set, s.Seal(plain, b.Owner), b.Key); err != nil {
			return 0, 0, err
		}
		_, _ = fmt.Sscan(b.Key, &last)
	}
	return len(list), last, nil
}

func agentOwner(project, id string) string { return "agent " + stored(project) + " " + stored(id) }
func conversationOwner(project, id string) string {
	return "conversation " + stored(project) + " " + stored(id)
}
func keyOwner(name string) string    { return "key " + name }
func endpointOwner(id string) string { return "endpoint " + stored(id) }
