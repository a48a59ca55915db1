package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/store/statements"
)

var (
	_ kv.Store   = (*Store)(nil)
	_ kv.Evicter = (*Store)(nil)
)

// keyRow is where the entries of a space are: by the agent's number, or by kv.Space.Owner, in its
// stored form, under number 0.
type keyRow struct {
	no      int64
	project string
}

// oneKey is the row k of a key u.key. Its LIMIT makes PostgreSQL look each key up. A join may read
// the whole space instead, if the statistics are old or other spaces are much smaller.
const oneKey = "LATERAL (SELECT * FROM kv WHERE agent_no = $1 AND project = $2 AND key = u.key LIMIT 1) k"

// lockAgent takes the agent's lock, which keeps out other writers and an erasure, and returns its
// number.
func lockAgent(ctx context.Context, tx pgx.Tx, project, id string) (no int64, err error) {
	err = tx.QueryRow(ctx, "SELECT h.agent_no FROM agent_head h JOIN agent a ON a.no = h.agent_no WHERE a.project = $1 AND a.id = $2 FOR UPDATE OF h",
		pg.Stored(project), pg.Stored(id)).Scan(&no)
	if pg.NoRows(err) {
		return 0, noAgent(id)
	}
	return no, err
}

// lockSpace takes the lock of a space: that of the agent, or that of what is noted of the space.
// Several deletions need the lock, too, and may find nothing noted.
func lockSpace(ctx context.Context, tx pgx.Tx, space kv.Space) (keyRow, error) {
	if space.Agent != "" {
		no, err := lockAgent(ctx, tx, space.Project, space.Agent)
		return keyRow{no: no}, err
	}
	at := keyRow{project: pg.Stored(space.Owner())}
	_, err := tx.Exec(ctx, "SELECT 1 FROM kv_count WHERE project = $1 FOR UPDATE", at.project)
	return at, err
}

// lockHeldSpace is lockSpace for a deletion, which is refused if the space is under hold.
func (s *Store) lockHeldSpace(ctx context.Context, tx pgx.Tx, space kv.Space) (keyRow, error) {
	h, err := s.holds(ctx, tx, space.Project)
	if err != nil {
		return keyRow{}, err
	}
	at, err := lockSpace(ctx, tx, space)
	if err == nil && at.no != 0 {
		err = h.Agent(at.no)
	}
	return at, err
}

// writeKeys runs fn in a transaction in which a space may get entries. If a working memory is full,
// it runs fn again after what has expired there is deleted.
func (s *Store) writeKeys(ctx context.Context, what string, space kv.Space, nowMS int64, fn func(ctx context.Context, tx pgx.Tx, at keyRow, keys, size int64) error) error {
	write := func(expire bool) error {
		return s.db.Transact(ctx, what, func(ctx context.Context, tx pgx.Tx) error {
			if expire {
				at, err := s.lockHeldSpace(ctx, tx, space)
				if err == nil {
					_, err = tx.Exec(ctx, "DELETE FROM kv WHERE agent_no = $1 AND expires_ms <= $2", at.no, nowMS)
				}
				if err != nil {
					return err
				}
			}
			at, keys, size, err := sizeOf(ctx, tx, space)
			if err != nil {
				return err
			}
			return fn(ctx, tx, at, keys, size)
		})
	}
	full := write(false)
	if space.Agent == "" || !fault.Is(full, fault.Quota) {
		return full
	}
	if err := write(true); !fault.Is(err, fault.Held) {
		return err
	}
	return full
}

// sizeOf locks a space that may get entries and returns where they are, how many there are, and
// their size.
func sizeOf(ctx context.Context, tx pgx.Tx, space kv.Space) (at keyRow, keys, size int64, err error) {
	if space.Agent == "" {
		at.project = pg.Stored(space.Owner())
		err = tx.QueryRow(ctx, "INSERT INTO kv_count AS c (project, n, size) VALUES ($1, 0, 0) ON CONFLICT (project) DO UPDATE SET n = c.n RETURNING n, size", at.project).Scan(&keys, &size)
		return at, keys, size, err
	}
	if at.no, err = lockAgent(ctx, tx, space.Project, space.Agent); err != nil {
		return at, 0, 0, err
	}
	// A query of its own: what was joined to the lock may be older than it.
	var a memory.Agent
	if err := tx.QueryRow(ctx, "SELECT status, stop_ms, message FROM agent WHERE no = $1", at.no).Scan(&a.Status, &a.StopMS, &a.Message); err != nil {
		return at, 0, 0, err
	}
	a.Message = pg.Shown(a.Message)
	if err := a.MustBeActive(fault.Stopped); err != nil {
		return at, 0, 0, err
	}
	err = tx.QueryRow(ctx, "SELECT count(*), coalesce(sum(size), 0)::bigint FROM kv WHERE agent_no = $1", at.no).Scan(&keys, &size)
	return at, keys, size, err
}

// PutKeys implements kv.Store.
func (s *Store) PutKeys(ctx context.Context, space kv.Space, entries []kv.Entry, limit kv.Limit, nowMS int64) error {
	key, err := s.keyOf(ctx, encryption.Of{Project: space.Project})
	if err != nil {
		return err
	}
	// Not under the lock.
	sealed := pg.Column(entries, func(e *kv.Entry) []byte { return key.Seal(e.Value, statements.KVOwner(space, e.Key)) })
	return s.writeKeys(ctx, "store keys", space, nowMS, func(ctx context.Context, tx pgx.Tx, at keyRow, keys, size int64) error {
		return putKeys(ctx, tx, space, at, keys, size, entries, sealed, limit, nowMS)
	})
}

// UpdateKey implements kv.Store.
func (s *Store) UpdateKey(ctx context.Context, space kv.Space, key string, once kv.Once, limit kv.Limit, nowMS int64, decide func(*kv.Entry) (kv.Entry, error)) (e kv.Entry, err error) {
	sealing, err := s.keyOf(ctx, encryption.Of{Project: space.Project})
	if err != nil {
		return e, err
	}
	err = s.writeKeys(ctx, "update a key", space, nowMS, func(ctx context.Context, tx pgx.Tx, at keyRow, keys, size int64) error {
		marks := space.Marks()
		marksAt := keyRow{project: pg.Stored(marks.Owner())}
		if once.ID != "" {
			done, err := s.selectKeys(ctx, tx, marks, marksAt, []string{once.ID}, nowMS)
			if err != nil {
				return err
			}
			if len(done) > 0 {
				e, err = once.Repeat(key, done[0].Value)
				return err
			}
		}
		list, err := s.selectKeys(ctx, tx, space, at, []string{key}, nowMS)
		if err != nil {
			return err
		}
		var old *kv.Entry
		if len(list) > 0 {
			old = &list[0]
		}
		if e, err = decide(old); err != nil {
			return err
		}
		put := func(space kv.Space, at keyRow, keys, size int64, e kv.Entry, limit kv.Limit) error {
			return putKeys(ctx, tx, space, at, keys, size, []kv.Entry{e}, [][]byte{sealing.Seal(e.Value, statements.KVOwner(space, e.Key))}, limit, nowMS)
		}
		if err := put(space, at, keys, size, e, limit); err != nil || once.ID == "" {
			return err
		}
		m, err := once.Mark(&e, nowMS)
		if err != nil {
			return err
		}
		// The lock of the space is held, so that none waits for that of its marks.
		if marksAt, keys, size, err = sizeOf(ctx, tx, marks); err != nil {
			return err
		}
		return put(marks, marksAt, keys, size, m, kv.Limit{})
	})
	return e, err
}

// putKeys stores entries under the lock of their space, which holds that many keys of that size. If
// the limit is reached, expired entries make room.
func putKeys(ctx context.Context, tx pgx.Tx, space kv.Space, at keyRow, keys, size int64, entries []kv.Entry, sealed [][]byte, limit kv.Limit, nowMS int64) error {
	names := pg.Column(entries, func(e *kv.Entry) string { return pg.Stored(e.Key) })
	var replaced, replacedSize, added int64
	was := size
	err := tx.QueryRow(ctx, "SELECT count(*), coalesce(sum(k.size), 0)::bigint FROM unnest($3::text[]) u (key), "+oneKey, at.no, at.project, names).Scan(&replaced, &replacedSize)
	if err != nil {
		return err
	}
	for i := range entries {
		added += entries[i].Size()
	}
	grown := int64(len(entries)) - replaced
	keys, size = keys+grown, size+added-replacedSize
	check := func() error {
		if grown == 0 && at.no == 0 {
			return limit.Check(space, 0, size) // an entry may be replaced however many there are
		}
		return limit.Check(space, keys, size)
	}
	if check() != nil && at.no == 0 {
		var n, freed int64
		err := tx.QueryRow(ctx, `WITH gone AS (DELETE FROM kv WHERE agent_no = 0 AND project = $1 AND expires_ms <= $2 AND key <> ALL($3) RETURNING size)
			SELECT count(*), coalesce(sum(size), 0)::bigint FROM gone`, at.project, nowMS, names).Scan(&n, &freed)
		if err != nil {
			return err
		}
		keys, size = keys-n, size-freed
	}
	if err := check(); err != nil {
		return err
	}
	b := &pgx.Batch{}
	b.Queue(`INSERT INTO kv AS old (agent_no, project, key, size, updated_ms, expires_ms, body, pinned, used_ms, uses)
		SELECT $1, $2, u.*, u.updated_ms, 1 FROM unnest($3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bytea[], $8::boolean[]) u (key, size, updated_ms, expires_ms, body, pinned)
		ON CONFLICT (agent_no, project, key) DO UPDATE SET size = excluded.size, updated_ms = excluded.updated_ms, expires_ms = excluded.expires_ms, body = excluded.body,
			pinned = excluded.pinned, used_ms = excluded.used_ms, uses = old.uses + 1`,
		at.no, at.project, names, pg.Column(entries, func(e *kv.Entry) int64 { return e.Size() }), pg.Column(entries, func(e *kv.Entry) int64 { return e.UpdatedMS }),
		pg.Column(entries, func(e *kv.Entry) int64 { return e.ExpiresMS }), sealed, pg.Column(entries, func(e *kv.Entry) bool { return e.Pinned }))
	if at.no == 0 {
		b.Queue("UPDATE kv_count SET n = $2, size = $3 WHERE project = $1", at.project, keys, size)
		b.Queue(addKeys, at.project, size-was)
	}
	return tx.SendBatch(ctx, b).Close()
}

// uncount takes entries that were deleted from what is noted of a space. A space without keys has
// nothing noted.
func uncount(ctx context.Context, tx pgx.Tx, at keyRow, keys int, size int64) error {
	if at.no != 0 || keys == 0 {
		return nil
	}
	b := &pgx.Batch{}
	b.Queue("UPDATE kv_count SET n = n - $2, size = size - $3 WHERE project = $1", at.project, keys, size)
	b.Queue("DELETE FROM kv_count WHERE project = $1 AND n = 0", at.project)
	b.Queue(addKeys, at.project, -size)
	return tx.SendBatch(ctx, b).Close()
}

// readKeys runs fn where a space's entries are, in one snapshot.
func (s *Store) readKeys(ctx context.Context, space kv.Space, fn func(ctx context.Context, tx pgx.Tx, at keyRow) error) error {
	return s.db.Read(ctx, "read keys", func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, s.db.Pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			at := keyRow{project: pg.Stored(space.Owner())}
			if space.Agent != "" {
				at.project = ""
				err := tx.QueryRow(ctx, "SELECT no FROM agent WHERE project = $1 AND id = $2", pg.Stored(space.Project), pg.Stored(space.Agent)).Scan(&at.no)
				if pg.NoRows(err) {
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

// GetKeys implements kv.Store.
func (s *Store) GetKeys(ctx context.Context, space kv.Space, keys []string, nowMS int64) (found []kv.Entry, err error) {
	err = s.readKeys(ctx, space, func(ctx context.Context, tx pgx.Tx, at keyRow) (err error) {
		found, err = s.selectKeys(ctx, tx, space, at, keys, nowMS)
		return err
	})
	return found, err
}

// selectKeys returns the entries of keys, in their order.
func (s *Store) selectKeys(ctx context.Context, tx pgx.Tx, space kv.Space, at keyRow, keys []string, nowMS int64) ([]kv.Entry, error) {
	return pg.Collect(ctx, tx, func(row pgx.CollectableRow) (e kv.Entry, err error) {
		var sealed []byte
		if err := row.Scan(&e.Key, &e.UpdatedMS, &e.ExpiresMS, &e.Pinned, &sealed); err != nil {
			return e, err
		}
		e.Key = pg.Shown(e.Key)
		e.Value, err = s.sealer.Open(sealed, statements.KVOwner(space, e.Key))
		return e, err
	}, "SELECT k.key, k.updated_ms, k.expires_ms, k.pinned, k.body FROM unnest($3::text[]) WITH ORDINALITY u (key, at), "+oneKey+" WHERE k.expires_ms > $4 ORDER BY u.at",
		at.no, at.project, pg.StoredAll(keys), nowMS)
}

// DeleteKey implements kv.Store.
func (s *Store) DeleteKey(ctx context.Context, space kv.Space, key string, nowMS int64) (found bool, err error) {
	err = s.db.Transact(ctx, "delete key", func(ctx context.Context, tx pgx.Tx) error {
		found = false
		at, err := s.lockHeldSpace(ctx, tx, space)
		if err != nil {
			return err
		}
		var expires, size int64
		err = tx.QueryRow(ctx, "DELETE FROM kv WHERE agent_no = $1 AND project = $2 AND key = $3 RETURNING expires_ms, size", at.no, at.project, pg.Stored(key)).Scan(&expires, &size)
		if pg.NoRows(err) {
			return nil
		}
		if err != nil {
			return err
		}
		found = expires > nowMS
		return uncount(ctx, tx, at, 1, size)
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
			err = tx.QueryRow(ctx, `SELECT coalesce(sum(n), 0)::bigint, coalesce(sum(size), 0)::bigint FROM (SELECT n, size FROM kv_count WHERE project = $1
				UNION ALL SELECT -count(*), -coalesce(sum(size), 0) FROM kv WHERE agent_no = 0 AND project = $1 AND expires_ms <= $2) counted`, at.project, nowMS).Scan(&page.Total, &page.Bytes)
		} else {
			err = tx.QueryRow(ctx, "SELECT count(*), coalesce(sum(size), 0)::bigint FROM kv WHERE agent_no = $1 AND expires_ms > $2", at.no, nowMS).Scan(&page.Total, &page.Bytes)
		}
		if err != nil {
			return err
		}
		page.Keys, err = pg.Collect(ctx, tx, func(row pgx.CollectableRow) (k kv.Key, err error) {
			err = row.Scan(&k.Key, &k.Bytes, &k.UpdatedMS, &k.ExpiresMS, &k.Pinned, &k.UsedMS, &k.Uses)
			k.Key = pg.Shown(k.Key)
			return k, err
		}, "SELECT key, size, updated_ms, expires_ms, pinned, used_ms, uses FROM kv WHERE agent_no = $1 AND project = $2 AND key > $3 AND expires_ms > $4 ORDER BY key LIMIT $5",
			at.no, at.project, pg.Stored(after), nowMS, max(limit, 1))
		return err
	})
	return page, err
}

// clearRows is how many entries of a project a transaction deletes.
const clearRows = 64

// Spaces implements kv.Store.
func (s *Store) Spaces(ctx context.Context, project string) ([]kv.Space, error) {
	where, args := `strpos(project, '/') > 0 AND project NOT LIKE '~%'
		UNION ALL SELECT a.project, a.id, '' FROM agent a WHERE a.no IN (SELECT agent_no FROM kv WHERE agent_no <> 0)`, []any(nil)
	if project != "" {
		// "0" follows the slash.
		where, args = "project > $1 AND project < $2 ORDER BY project", []any{pg.Stored(project) + "/", pg.Stored(project) + "0"}
	}
	return pg.ReadAll(ctx, s.db, "list namespaces", func(row pgx.CollectableRow) (space kv.Space, err error) {
		err = row.Scan(&space.Project, &space.Agent, &space.Name)
		return kv.Space{Project: pg.Shown(space.Project), Agent: pg.Shown(space.Agent), Name: pg.Shown(space.Name)}, err
	}, "SELECT split_part(project, '/', 1), '', substr(project, strpos(project, '/') + 1) FROM kv_count WHERE n > 0 AND "+where, args...)
}

// ClearKeys implements kv.Store. An agent's entries go at once: marking rows as deleted is quick
// however large they are, and only the agent's own writers wait.
func (s *Store) ClearKeys(ctx context.Context, space kv.Space, nowMS int64) (cleared int, err error) {
	for more := true; more; {
		var n, live int
		var size int64
		err := s.db.Transact(ctx, "clear keys", func(ctx context.Context, tx pgx.Tx) error {
			at, err := s.lockHeldSpace(ctx, tx, space)
			if err != nil {
				return err
			}
			most := clearRows
			if at.no != 0 {
				most = 1 << 30
			}
			err = tx.QueryRow(ctx, `WITH gone AS (DELETE FROM kv WHERE agent_no = $1 AND project = $2 AND key <= (SELECT max(key) FROM (
					SELECT key FROM kv WHERE agent_no = $1 AND project = $2 ORDER BY key LIMIT $3) k) RETURNING expires_ms, size)
				SELECT count(*), count(*) FILTER (WHERE expires_ms > $4), coalesce(sum(size), 0)::bigint FROM gone`, at.no, at.project, most, nowMS).Scan(&n, &live, &size)
			if err != nil {
				return err
			}
			return uncount(ctx, tx, at, n, size)
		})
		if err != nil {
			return cleared, err
		}
		cleared += live
		more = space.Agent == "" && n == clearRows
	}
	return cleared, nil
}

// EvictKeys implements kv.Evicter.
func (s *Store) EvictKeys(ctx context.Context, space kv.Space, keys []kv.Key) (evicted int, err error) {
	err = s.db.Transact(ctx, "evict keys", func(ctx context.Context, tx pgx.Tx) error {
		at, err := s.lockHeldSpace(ctx, tx, space)
		if err != nil {
			return err
		}
		evicted = 0
		var size int64
		b := &pgx.Batch{} // a join may read the whole space; see oneKey
		for _, k := range keys {
			b.Queue("DELETE FROM kv WHERE agent_no = $1 AND project = $2 AND key = $3 AND updated_ms = $4 AND NOT pinned RETURNING size",
				at.no, at.project, pg.Stored(k.Key), k.UpdatedMS).Query(func(rows pgx.Rows) error {
				for rows.Next() {
					var n int64
					if err := rows.Scan(&n); err != nil {
						return err
					}
					evicted, size = evicted+1, size+n
				}
				return rows.Err()
			})
		}
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		return uncount(ctx, tx, at, evicted, size)
	})
	return evicted, err
}

// TouchKeys implements kv.Evicter.
func (s *Store) TouchKeys(ctx context.Context, space kv.Space, uses []kv.Use) error {
	return s.db.Transact(ctx, "note reads of keys", func(ctx context.Context, tx pgx.Tx) error {
		at, err := lockSpace(ctx, tx, space)
		if err != nil {
			return err
		}
		b := &pgx.Batch{} // as in EvictKeys
		for _, u := range uses {
			b.Queue("UPDATE kv SET used_ms = greatest(used_ms, $4), uses = uses + $5 WHERE agent_no = $1 AND project = $2 AND key = $3",
				at.no, at.project, pg.Stored(u.Key), u.UsedMS, u.Uses)
		}
		return tx.SendBatch(ctx, b).Close()
	})
}

// SweepKeys implements kv.Store. It leaves rows that another transaction has locked.
func (s *Store) SweepKeys(ctx context.Context, nowMS int64) (int, error) {
	for erased := 0; ; {
		n := 0
		// Those of the agents that are next; an agent's keys wait for the lock of its project.
		projects, err := pg.ReadAll(ctx, s.db, "find expired keys", pgx.RowTo[string], `SELECT DISTINCT a.project FROM (SELECT agent_no FROM kv
			WHERE expires_ms <= $1 AND agent_no <> 0 AND `+statements.KeyNotHeld+` LIMIT $2) k JOIN agent a ON a.no = k.agent_no ORDER BY a.project`, nowMS, sliceRows)
		if err != nil {
			return erased, err
		}
		err = s.db.Transact(ctx, "erase expired keys", func(ctx context.Context, tx pgx.Tx) error {
			if err := s.lockHolds(ctx, tx, projects); err != nil {
				return err
			}
			// By expires_ms the index finds the rows. A join alone may read the whole table.
			return tx.QueryRow(ctx, `WITH due AS (SELECT agent_no, project, key, expires_ms FROM kv
					WHERE expires_ms <= $1 AND (agent_no = 0 OR EXISTS (SELECT 1 FROM agent a WHERE a.no = kv.agent_no AND a.project = ANY($3) AND `+statements.NotHeld+`)) LIMIT $2 FOR UPDATE SKIP LOCKED),
				gone AS (DELETE FROM kv WHERE expires_ms = ANY(ARRAY(SELECT expires_ms FROM due)) AND (agent_no, project, key) IN (SELECT agent_no, project, key FROM due)
					RETURNING agent_no, project, size),
				counted AS (UPDATE kv_count c SET n = c.n - g.n, size = c.size - g.size
					FROM (SELECT project, count(*) AS n, sum(size) AS size FROM gone WHERE agent_no = 0 GROUP BY project) g WHERE c.project = g.project RETURNING c.project, g.size),
				used AS (INSERT INTO project_use (project, bytes) SELECT `+spaceProject+`, -size FROM counted WHERE `+isSpace+`)
				SELECT count(*) FROM gone`, nowMS, sliceRows, projects).Scan(&n)
		})
		erased += n
		if err != nil {
			return erased, err
		}
		if n < sliceRows {
			return erased, s.db.Transact(ctx, "forget empty spaces", func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "DELETE FROM kv_count WHERE n = 0")
				return err
			})
		}
	}
}
