package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/tables"
)

var _ kv.Store = (*Store)(nil)

// keyRow is where the entries of a space are: by the agent's number, or by the project, in its
// stored form, under number 0.
type keyRow struct {
	no      int64
	project string
}

// lockAgent takes the agent's lock, which keeps out other writers and an erasure, and returns its
// number.
func lockAgent(ctx context.Context, tx pgx.Tx, project, id string) (no int64, err error) {
	err = tx.QueryRow(ctx, "SELECT h.agent_no FROM agent_head h JOIN agent a ON a.no = h.agent_no WHERE a.project = $1 AND a.id = $2 FOR UPDATE OF h",
		stored(project), stored(id)).Scan(&no)
	if noRows(err) {
		return 0, noAgent(id)
	}
	return no, err
}

// lockSpace takes the lock of a space: that of the agent, or the project's count of conversations.
func lockSpace(ctx context.Context, tx pgx.Tx, space kv.Space) (keyRow, error) {
	if space.Agent != "" {
		no, err := lockAgent(ctx, tx, space.Project, space.Agent)
		return keyRow{no: no}, err
	}
	at := keyRow{project: stored(space.Project)}
	_, err := tx.Exec(ctx, "SELECT 1 FROM kv_count WHERE project = $1 FOR UPDATE", at.project)
	return at, err
}

// PutKey implements kv.Store.
func (s *Store) PutKey(ctx context.Context, space kv.Space, e kv.Entry, limit kv.Limit, nowMS int64) error {
	sealed := s.sealer.Seal(e.Value, tables.KVOwner(space, e.Key))
	return s.transact(ctx, "store key", func(ctx context.Context, tx pgx.Tx) error {
		if space.Agent == "" {
			return putConversation(ctx, tx, space, &e, sealed, limit, nowMS)
		}
		no, err := lockAgent(ctx, tx, space.Project, space.Agent)
		if err != nil {
			return err
		}
		// A query of its own: what was joined to the lock may be older than it.
		var a memory.Agent
		if err := tx.QueryRow(ctx, "SELECT status, stop_ms, message FROM agent WHERE no = $1", no).Scan(&a.Status, &a.StopMS, &a.Message); err != nil {
			return err
		}
		a.Message = shown(a.Message)
		if err := a.MustBeActive(fault.Stopped); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM kv WHERE agent_no = $1 AND expires_ms <= $2", no, nowMS); err != nil {
			return err
		}
		var keys, size int64 // of the others
		var taken bool
		err = tx.QueryRow(ctx, `SELECT count(*) FILTER (WHERE key <> $2), coalesce(sum(size) FILTER (WHERE key <> $2), 0)::bigint, coalesce(bool_or(key = $2), false)
			FROM kv WHERE agent_no = $1`, no, stored(e.Key)).Scan(&keys, &size, &taken)
		if err != nil {
			return err
		}
		if limit.New && taken {
			return kv.ErrTaken(e.Key)
		}
		if err := limit.Check(space, keys+1, size+e.Size()); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO kv (agent_no, project, key, size, updated_ms, expires_ms, body) VALUES ($1, '', $2, $3, $4, $5, $6)
			ON CONFLICT (agent_no, project, key) DO UPDATE SET size = excluded.size, updated_ms = excluded.updated_ms, expires_ms = excluded.expires_ms, body = excluded.body`,
			no, stored(e.Key), e.Size(), e.UpdatedMS, e.ExpiresMS, sealed)
		return err
	})
}

// putConversation stores an entry of a project. New ones are counted under the lock of the
// project's count; one that is there is replaced without it.
func putConversation(ctx context.Context, tx pgx.Tx, space kv.Space, e *kv.Entry, sealed []byte, limit kv.Limit, nowMS int64) error {
	p, key := stored(space.Project), stored(e.Key)
	ended := int64(kv.Never) // what may be replaced has ended by then
	if limit.New {
		ended = nowMS
	}
	replace := func() (bool, error) {
		done, err := tx.Exec(ctx, "UPDATE kv SET size = $3, updated_ms = $4, expires_ms = $5, body = $6 WHERE agent_no = 0 AND project = $1 AND key = $2 AND expires_ms <= $7",
			p, key, e.Size(), e.UpdatedMS, e.ExpiresMS, sealed, ended)
		return done.RowsAffected() == 1, err
	}
	if found, err := replace(); err != nil || found {
		return err
	}
	var n int64
	err := tx.QueryRow(ctx, "INSERT INTO kv_count AS c (project, n) VALUES ($1, 1) ON CONFLICT (project) DO UPDATE SET n = c.n + 1 RETURNING n", p).Scan(&n)
	if err != nil {
		return err
	}
	done, err := tx.Exec(ctx, "INSERT INTO kv (agent_no, project, key, size, updated_ms, expires_ms, body) VALUES (0, $1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
		p, key, e.Size(), e.UpdatedMS, e.ExpiresMS, sealed)
	if err != nil {
		return err
	}
	if done.RowsAffected() == 0 { // it is there, or another server has stored it meanwhile
		if limit.New {
			return kv.ErrTaken(e.Key)
		}
		if _, err := replace(); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "UPDATE kv_count SET n = n - 1 WHERE project = $1", p)
		return err
	}
	return limit.Check(space, n, 0)
}

// readKeys runs fn where a space's entries are, in one snapshot.
func (s *Store) readKeys(ctx context.Context, space kv.Space, fn func(ctx context.Context, tx pgx.Tx, at keyRow) error) error {
	return s.read(ctx, "read keys", func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			at := keyRow{project: stored(space.Project)}
			if space.Agent != "" {
				at.project = ""
				err := tx.QueryRow(ctx, "SELECT no FROM agent WHERE project = $1 AND id = $2", stored(space.Project), stored(space.Agent)).Scan(&at.no)
				if noRows(err) {
					return noAgent(space.Agent)
				}
				if err != nil {
					return err
				}
			}
			return fn(ctx, tx, at)
		})
	})
}

// GetKey implements kv.Store.
func (s *Store) GetKey(ctx context.Context, space kv.Space, key string, nowMS int64) (e kv.Entry, err error) {
	err = s.readKeys(ctx, space, func(ctx context.Context, tx pgx.Tx, at keyRow) error {
		var sealed []byte
		e = kv.Entry{Key: key}
		err := tx.QueryRow(ctx, "SELECT updated_ms, expires_ms, body FROM kv WHERE agent_no = $1 AND project = $2 AND key = $3 AND expires_ms > $4", at.no, at.project, stored(key), nowMS).
			Scan(&e.UpdatedMS, &e.ExpiresMS, &sealed)
		if noRows(err) {
			return kv.ErrNoKey(space, key)
		}
		if err != nil {
			return err
		}
		e.Value, err = s.sealer.Open(sealed, tables.KVOwner(space, key))
		return err
	})
	return e, err
}

// DeleteKey implements kv.Store.
func (s *Store) DeleteKey(ctx context.Context, space kv.Space, key string, nowMS int64) (found bool, err error) {
	err = s.transact(ctx, "delete key", func(ctx context.Context, tx pgx.Tx) error {
		found = false
		at, err := lockSpace(ctx, tx, space)
		if err != nil {
			return err
		}
		var expires int64
		err = tx.QueryRow(ctx, "DELETE FROM kv WHERE agent_no = $1 AND project = $2 AND key = $3 RETURNING expires_ms", at.no, at.project, stored(key)).Scan(&expires)
		if noRows(err) {
			return nil
		}
		if found = expires > nowMS; err == nil && at.no == 0 {
			_, err = tx.Exec(ctx, "UPDATE kv_count SET n = n - 1 WHERE project = $1", at.project)
		}
		return err
	})
	return found, err
}

// ListKeys implements kv.Store. A key that a text column cannot hold, which no API allows, would
// sort by its stored form.
func (s *Store) ListKeys(ctx context.Context, space kv.Space, after string, limit int, nowMS int64) (page kv.Page, err error) {
	err = s.readKeys(ctx, space, func(ctx context.Context, tx pgx.Tx, at keyRow) error {
		page = kv.Page{}
		var err error
		if at.no == 0 {
			err = tx.QueryRow(ctx, "SELECT coalesce(sum(n), 0)::bigint FROM kv_count WHERE project = $1", at.project).Scan(&page.Total)
		} else {
			err = tx.QueryRow(ctx, "SELECT count(*), coalesce(sum(size), 0)::bigint FROM kv WHERE agent_no = $1 AND expires_ms > $2", at.no, nowMS).Scan(&page.Total, &page.Bytes)
		}
		if err != nil {
			return err
		}
		page.Keys, err = collect(ctx, tx, func(row pgx.CollectableRow) (k kv.Key, err error) {
			err = row.Scan(&k.Key, &k.Bytes, &k.UpdatedMS, &k.ExpiresMS)
			k.Key = shown(k.Key)
			return k, err
		}, "SELECT key, size, updated_ms, expires_ms FROM kv WHERE agent_no = $1 AND project = $2 AND key > $3 AND expires_ms > $4 ORDER BY key LIMIT $5",
			at.no, at.project, stored(after), nowMS, max(limit, 1))
		return err
	})
	return page, err
}

// clearRows is how many entries of a project a transaction deletes.
const clearRows = 64

// ClearKeys implements kv.Store. An agent's entries go at once: marking rows as deleted is quick
// however large they are, and only the agent's own writers wait.
func (s *Store) ClearKeys(ctx context.Context, space kv.Space, nowMS int64) (cleared int, err error) {
	for more := true; more; {
		var n, live int
		err := s.transact(ctx, "clear keys", func(ctx context.Context, tx pgx.Tx) error {
			at, err := lockSpace(ctx, tx, space)
			if err != nil {
				return err
			}
			most := clearRows
			if at.no != 0 {
				most = 1 << 30
			}
			err = tx.QueryRow(ctx, `WITH gone AS (DELETE FROM kv WHERE agent_no = $1 AND project = $2
				AND key IN (SELECT key FROM kv WHERE agent_no = $1 AND project = $2 LIMIT $3) RETURNING expires_ms)
				SELECT count(*), count(*) FILTER (WHERE expires_ms > $4) FROM gone`, at.no, at.project, most, nowMS).Scan(&n, &live)
			if err == nil && at.no == 0 {
				_, err = tx.Exec(ctx, "UPDATE kv_count SET n = n - $2 WHERE project = $1", at.project, n)
			}
			return err
		})
		if err != nil {
			return cleared, err
		}
		cleared += live
		more = space.Agent == "" && n == clearRows
	}
	return cleared, nil
}

// SweepKeys implements kv.Store. It leaves rows that another transaction has locked.
func (s *Store) SweepKeys(ctx context.Context, nowMS int64) (int, error) {
	for erased := 0; ; {
		n := 0
		err := s.transact(ctx, "erase expired keys", func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, `WITH gone AS (DELETE FROM kv WHERE (agent_no, project, key) IN
					(SELECT agent_no, project, key FROM kv WHERE expires_ms <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING agent_no, project),
				counted AS (UPDATE kv_count c SET n = c.n - g.n FROM (SELECT project, count(*) AS n FROM gone WHERE agent_no = 0 GROUP BY project) g WHERE c.project = g.project)
				SELECT count(*) FROM gone`, nowMS, sliceRows).Scan(&n)
		})
		erased += n
		if err != nil || n < sliceRows {
			return erased, err
		}
	}
}
