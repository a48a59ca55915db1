package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

var _ memory.WorkingStore = (*Store)(nil)

// lockAgent takes the agent's lock, which keeps other writers and an erasure out, and gives its number.
func lockAgent(ctx context.Context, tx pgx.Tx, project, id string) (no int64, err error) {
	err = tx.QueryRow(ctx, "SELECT h.agent_no FROM agent_head h JOIN agent a ON a.no = h.agent_no WHERE a.project = $1 AND a.id = $2 FOR UPDATE OF h",
		stored(project), stored(id)).Scan(&no)
	if noRows(err) {
		return 0, noAgent(id)
	}
	return no, err
}

// PutWorking stores an entry under the agent's lock, and takes away what has expired of it.
func (s *Store) PutWorking(ctx context.Context, project, agentID string, e memory.WorkingEntry, limit memory.WorkingLimit, nowMS int64) error {
	sealed := s.sealer.Seal(e.Value, workingOwner(project, agentID, e.Key))
	return s.transact(ctx, "store key", func(ctx context.Context, tx pgx.Tx) error {
		no, err := lockAgent(ctx, tx, project, agentID)
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
		if _, err := tx.Exec(ctx, "DELETE FROM working WHERE agent_no = $1 AND expires_ms <= $2", no, nowMS); err != nil {
			return err
		}
		var keys, size int64
		err = tx.QueryRow(ctx, "SELECT count(*), coalesce(sum(size), 0)::bigint FROM working WHERE agent_no = $1 AND key <> $2", no, stored(e.Key)).Scan(&keys, &size)
		if err != nil {
			return err
		}
		if err := limit.Check(keys+1, size+e.Size()); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO working (agent_no, key, size, updated_ms, expires_ms, body) VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (agent_no, key) DO UPDATE SET size = excluded.size, updated_ms = excluded.updated_ms, expires_ms = excluded.expires_ms, body = excluded.body`,
			no, stored(e.Key), e.Size(), e.UpdatedMS, e.ExpiresMS, sealed)
		return err
	})
}

// readWorking runs fn on an agent's number in one snapshot.
func (s *Store) readWorking(ctx context.Context, project, agentID string, fn func(ctx context.Context, tx pgx.Tx, no int64) error) error {
	return s.read(ctx, "read the working memory", func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			var no int64
			err := tx.QueryRow(ctx, "SELECT no FROM agent WHERE project = $1 AND id = $2", stored(project), stored(agentID)).Scan(&no)
			if noRows(err) {
				return noAgent(agentID)
			}
			if err != nil {
				return err
			}
			return fn(ctx, tx, no)
		})
	})
}

// Working gives an entry.
func (s *Store) Working(ctx context.Context, project, agentID, key string, nowMS int64) (e memory.WorkingEntry, err error) {
	err = s.readWorking(ctx, project, agentID, func(ctx context.Context, tx pgx.Tx, no int64) error {
		var sealed []byte
		e = memory.WorkingEntry{Key: key}
		err := tx.QueryRow(ctx, "SELECT updated_ms, expires_ms, body FROM working WHERE agent_no = $1 AND key = $2 AND expires_ms > $3", no, stored(key), nowMS).
			Scan(&e.UpdatedMS, &e.ExpiresMS, &sealed)
		if noRows(err) {
			return memory.ErrNoWorking(key)
		}
		if err != nil {
			return err
		}
		e.Value, err = s.sealer.Open(sealed, workingOwner(project, agentID, key))
		return err
	})
	return e, err
}

// DeleteWorking takes an entry away.
func (s *Store) DeleteWorking(ctx context.Context, project, agentID, key string, nowMS int64) (found bool, err error) {
	err = s.transact(ctx, "delete key", func(ctx context.Context, tx pgx.Tx) error {
		found = false
		no, err := lockAgent(ctx, tx, project, agentID)
		if err != nil {
			return err
		}
		var expires int64
		err = tx.QueryRow(ctx, "DELETE FROM working WHERE agent_no = $1 AND key = $2 RETURNING expires_ms", no, stored(key)).Scan(&expires)
		if noRows(err) {
			return nil
		}
		found = expires > nowMS
		return err
	})
	return found, err
}

// WorkingKeys lists an agent's keys. A key that a text column cannot hold, which no caller of ours has, would sort by its stored form.
func (s *Store) WorkingKeys(ctx context.Context, project, agentID, after string, limit int, nowMS int64) (page memory.WorkingPage, err error) {
	err = s.readWorking(ctx, project, agentID, func(ctx context.Context, tx pgx.Tx, no int64) error {
		page = memory.WorkingPage{}
		err := tx.QueryRow(ctx, "SELECT count(*), coalesce(sum(size), 0)::bigint FROM working WHERE agent_no = $1 AND expires_ms > $2", no, nowMS).Scan(&page.Total, &page.Bytes)
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, "SELECT key, size, updated_ms, expires_ms FROM working WHERE agent_no = $1 AND key > $2 AND expires_ms > $3 ORDER BY key LIMIT $4",
			no, stored(after), nowMS, max(limit, 1))
		if err != nil {
			return err
		}
		page.Keys, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (k memory.WorkingKey, err error) {
			err = row.Scan(&k.Key, &k.Bytes, &k.UpdatedMS, &k.ExpiresMS)
			k.Key = shown(k.Key)
			return k, err
		})
		return err
	})
	return page, err
}

// ClearWorking takes all of an agent's entries away: to mark rows as gone is quick however large they are, and only the agent's own writers wait.
func (s *Store) ClearWorking(ctx context.Context, project, agentID string, nowMS int64) (cleared int, err error) {
	err = s.transact(ctx, "clear the working memory", func(ctx context.Context, tx pgx.Tx) error {
		no, err := lockAgent(ctx, tx, project, agentID)
		if err != nil {
			return err
		}
		return tx.QueryRow(ctx, "WITH gone AS (DELETE FROM working WHERE agent_no = $1 RETURNING expires_ms) SELECT count(*) FROM gone WHERE expires_ms > $2", no, nowMS).Scan(&cleared)
	})
	return cleared, err
}

// SweepWorking erases what has expired, in slices; what somebody else has locked is left to him.
func (s *Store) SweepWorking(ctx context.Context, nowMS int64) (int, error) {
	for erased := 0; ; {
		n := 0
		err := s.transact(ctx, "erase expired keys", func(ctx context.Context, tx pgx.Tx) error {
			done, err := tx.Exec(ctx, `DELETE FROM working WHERE (agent_no, key) IN
				(SELECT agent_no, key FROM working WHERE expires_ms <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED)`, nowMS, sliceRows)
			n = int(done.RowsAffected())
			return err
		})
		erased += n
		if err != nil || n < sliceRows {
			return erased, err
		}
	}
}
