package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/statements"
)

var _ record.Store = (*Store)(nil)

// selectSpace selects the row of a space, or, if it has none, the one that holds the revision from
// which it would begin. That has an empty name.
const selectSpace = `SELECT no, name, rev, n, bytes, whole FROM record_space
	WHERE project = $1 AND (name, user_id) IN (($2, $3), ('', '')) ORDER BY name DESC LIMIT 1`

// spaceKey returns the arguments of selectSpace.
func spaceKey(at record.Space) []any {
	return []any{pg.Stored(at.Project), at.Name, pg.Stored(at.User)}
}

// lockRecords locks the row of a space, which is made if it is missing. All changes of a space have
// the lock, so revisions have no gaps and are committed in order.
func lockRecords(ctx context.Context, tx pgx.Tx, at record.Space) (no int64, state record.State, created bool, err error) {
	scan := func(row pgx.Row) error {
		return row.Scan(&no, &state.Rev, &state.Count, &state.Bytes, &state.CompactedRev)
	}
	key := spaceKey(at)
	for {
		err = scan(tx.QueryRow(ctx, "SELECT no, rev, n, bytes, whole FROM record_space WHERE project = $1 AND name = $2 AND user_id = $3 FOR UPDATE", key...))
		if !pg.NoRows(err) {
			return no, state, false, err
		}
		err = tx.QueryRow(ctx, `INSERT INTO record_space (project, name, user_id, rev, n, bytes, whole) VALUES ($1, $2, $3, 0, 0, 0, 0)
			ON CONFLICT (project, name, user_id) DO NOTHING RETURNING no`, key...).Scan(&no)
		if pg.NoRows(err) {
			continue // another server was quicker
		}
		if err != nil {
			return 0, state, false, err
		}
		// A statement of its own: it sees the erasure that the insertion may have waited for.
		err = scan(tx.QueryRow(ctx, `UPDATE record_space SET rev = f.rev, whole = f.rev FROM (SELECT coalesce(max(rev), 0) AS rev FROM record_space WHERE project = $2 AND name = '') f
			WHERE no = $1 RETURNING no, record_space.rev, n, bytes, whole`, no, key[0]))
		return no, state, true, err
	}
}

// ChangeRecords implements record.Store.
func (s *Store) ChangeRecords(ctx context.Context, at record.Space, changes []record.Change, limit record.Limit, events []memory.Event, nowMS int64) (state record.State, err error) {
	if err := record.Check(at, changes); err != nil {
		return state, err
	}
	wake := false
	err = s.db.Transact(ctx, "change records", func(ctx context.Context, tx pgx.Tx) (err error) {
		key, err := s.key(ctx, tx, statements.KeyOf(at.Project, at.User))
		if err != nil {
			return err
		}
		bodies := make(map[string]storedBody, len(changes))
		for _, c := range changes {
			if c.Body != nil { // not under the lock of the space
				bodies[c.ID] = storedBody{key.Seal(c.Body, statements.RecordOwner(at, c.ID)), arrayOf(s.words.Of(at, c.Body))}
			}
		}
		state, wake, err = s.changeRecords(ctx, tx, at, changes, bodies, limit, events, nowMS)
		return err
	})
	if err != nil {
		return record.State{}, err
	}
	if wake {
		s.wake()
	}
	return state, nil
}

func (s *Store) changeRecords(ctx context.Context, tx pgx.Tx, at record.Space, changes []record.Change, bodies map[string]storedBody, limit record.Limit, events []memory.Event, nowMS int64) (state record.State, wake bool, err error) {
	if err := s.holdRecords(ctx, tx, at, changes); err != nil {
		return state, false, err
	}
	no, before, created, err := lockRecords(ctx, tx, at)
	if err != nil {
		return before, false, err
	}
	held, err := heldRecords(ctx, tx, no, changes)
	if err != nil {
		return before, false, err
	}
	state, changes, err = record.Decide(before, changes, limit, func(id string) (rev, size int64) { return held[id].rev, held[id].size })
	if err != nil {
		return before, false, err
	}
	b := &pgx.Batch{}
	switch {
	case len(changes) > 0:
		queueRecords(b, no, state.Rev, changes, bodies, nowMS)
		b.Queue("UPDATE record_space SET rev = $2, n = $3, bytes = $4 WHERE no = $1", no, state.Rev, state.Count, state.Bytes)
		b.Queue(addBytes, pg.Stored(at.Project), state.Bytes-before.Bytes)
	case created:
		b.Queue("DELETE FROM record_space WHERE no = $1", no)
	}
	if len(events) > 0 {
		var n int64
		if err := tx.QueryRow(ctx, "SELECT n FROM counter WHERE key = 'endpoints'").Scan(&n); err != nil {
			return before, false, err
		}
		if err := s.freshEndpoints(ctx, tx, n); err != nil {
			return before, false, err
		}
		key, err := s.key(ctx, tx, encryption.Of{Project: at.Project})
		if err != nil {
			return before, false, err
		}
		o, err := s.outboxOf(memory.Ref{Project: at.Project}, 0, key, events)
		if err != nil {
			return before, false, err
		}
		o.queue(b)
		wake = !o.empty()
	}
	return state, wake, tx.SendBatch(ctx, b).Close()
}

// storedBody is the body of a record with its words, as they are stored.
type storedBody struct {
	sealed []byte
	words  *string
}

// heldRecord is a record that is there.
type heldRecord struct{ rev, size int64 }

// heldRecords returns those records of a space that changes are about.
func heldRecords(ctx context.Context, tx pgx.Tx, no int64, changes []record.Change) (map[string]heldRecord, error) {
	ids := pg.Column(changes, func(c *record.Change) string { return pg.Stored(c.ID) })
	out := map[string]heldRecord{}
	var id string
	var r heldRecord
	err := pg.Each(ctx, tx, []any{&id, &r.rev, &r.size}, func() error { out[pg.Shown(id)] = r; return nil }, "SELECT r.id, r.rev, r.size FROM unnest($2::text[]) u (id), LATERAL (SELECT * FROM record WHERE space_no = $1 AND id = u.id LIMIT 1) r WHERE r.body IS NOT NULL", no, ids)
	return out, err
}

// queueRecords queues the rows of changes, in order of their IDs, as all lock them.
func queueRecords(b *pgx.Batch, no, rev int64, changes []record.Change, bodies map[string]storedBody, nowMS int64) {
	slices.SortFunc(changes, func(a, b record.Change) int { return cmp.Compare(a.ID, b.ID) })
	b.Queue(`INSERT INTO record (space_no, id, rev, updated_ms, size, body, words)
		SELECT $1, u.id, $2, $3, u.size, u.body, u.words::bigint[] FROM unnest($4::text[], $5::bigint[], $6::bytea[], $7::text[]) u (id, size, body, words)
		ON CONFLICT (space_no, id) DO UPDATE SET rev = excluded.rev, updated_ms = excluded.updated_ms, size = excluded.size, body = excluded.body, words = excluded.words`, no, rev, nowMS,
		pg.Column(changes, func(c *record.Change) string { return pg.Stored(c.ID) }), pg.Column(changes, func(c *record.Change) int64 { return c.Size() }),
		pg.Column(changes, func(c *record.Change) []byte { return bodies[c.ID].sealed }), pg.Column(changes, func(c *record.Change) *string { return bodies[c.ID].words }))
}

// Record implements record.Store.
func (s *Store) Record(ctx context.Context, at record.Space, id string) (r record.Record, err error) {
	err = s.db.Read(ctx, "read a record", func(ctx context.Context) (err error) {
		r, err = statements.Record(pg.NewStatements(ctx, s.db.Pool), s.sealer, at, id)
		return err
	})
	return r, err
}

// Records implements record.Store. An ID that a text column cannot hold, which no API allows, would
// sort by its stored form.
func (s *Store) Records(ctx context.Context, at record.Space, q record.Query) (list []record.Record, state record.State, err error) {
	limit := max(q.Limit, 1)
	selected, args := "id > $4 AND body IS NOT NULL ORDER BY id LIMIT $5", append(spaceKey(at), pg.Stored(q.AfterID), limit)
	if q.ByRev {
		// Up to the end of the revision that the last record of the page has.
		selected = `rev > $4 AND rev <= coalesce((SELECT rev FROM record WHERE space_no = s.no AND rev > $4 ORDER BY rev LIMIT 1 OFFSET $5), 9223372036854775807) ORDER BY rev, id`
		args = append(spaceKey(at), q.AfterRev, limit-1)
	}
	err = s.db.Read(ctx, "read records", func(ctx context.Context) error {
		list, state = nil, record.State{}
		var id *string
		var rev, updated *int64
		var sealed []byte
		err = pg.Each(ctx, s.db.Pool, []any{&state.Rev, &state.Count, &state.Bytes, &state.CompactedRev, &id, &rev, &updated, &sealed}, func() error {
			if id == nil { // the space has no such records
				return nil
			}
			r := record.Record{ID: pg.Shown(*id), Rev: *rev, UpdatedMS: *updated, Deleted: sealed == nil}
			if !r.Deleted {
				if r.Body, err = statements.OpenRecord(s.sealer, sealed, at, r.ID); err != nil && !q.Broken {
					return err
				} else if err != nil {
					r.Body = nil
				}
			}
			list = append(list, r)
			return nil
		}, `SELECT s.rev, s.n, s.bytes, s.whole, r.id, r.rev, r.updated_ms, r.body FROM (`+selectSpace+`) s
			LEFT JOIN LATERAL (SELECT * FROM record WHERE space_no = s.no AND `+selected+`) r ON s.name <> ''`, args...)
		return err
	})
	if err != nil {
		return nil, record.State{}, err
	}
	return list, state, nil
}

// RecordSpaces implements record.Store. A user that a text column cannot hold, which no API allows,
// would sort by its stored form.
func (s *Store) RecordSpaces(ctx context.Context, project, prefix string, after record.Space, limit int) (list []record.Space, err error) {
	err = s.db.Read(ctx, "list spaces", func(ctx context.Context) (err error) {
		list, err = statements.RecordSpaces(pg.NewStatements(ctx, s.db.Pool), project, prefix, after, limit)
		return err
	})
	return list, err
}
