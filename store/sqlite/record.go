package sqlite

import (
	"context"
	"math"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
	"github.com/heardlog/heardlog/store/statements"
)

var _ record.Store = (*Store)(nil)

// largeRecords is how many bytes of records a change may have that is written beside others of its
// kind. Larger ones wait for each other, so that all others wait for one of them at a time.
const largeRecords = 64 << 10

// spaceRow is a row of record_space; no is 0 if the space has none.
type spaceRow struct {
	no    int64
	at    record.Space
	state record.State
}

// readSpace returns the row of a space.
func readSpace(c *dbfile.Conn, at record.Space) (spaceRow, error) {
	row, err := c.First("SELECT no, rev, n, bytes, whole FROM record_space WHERE project = ? AND name = ? AND user_id = ?", at.Project, at.Name, at.User)
	if err != nil {
		return spaceRow{at: at}, err
	}
	if row != nil {
		return spaceRow{row.Int(0), at, record.State{Rev: row.Int(1), Count: row.Int(2), Bytes: row.Int(3), CompactedRev: row.Int(4)}}, nil
	}
	floor, err := c.Number("SELECT rev FROM record_space WHERE project = ? AND name = '' AND user_id = ''", at.Project)
	return spaceRow{at: at, state: record.State{Rev: floor, CompactedRev: floor}}, err
}

// ChangeRecords implements record.Store.
func (s *Store) ChangeRecords(ctx context.Context, at record.Space, changes []record.Change, limit record.Limit, events []memory.Event, nowMS int64) (state record.State, err error) {
	if err := record.Check(at, changes); err != nil {
		return state, err
	}
	words, size := map[string]string{}, int64(0)
	for _, c := range changes {
		if c.Body != nil { // here, and not in the writer
			words[c.ID] = wordList(s.words.Of(at, c.Body))
		}
		size += c.Size()
	}
	if size > largeRecords {
		select {
		case s.large <- struct{}{}:
			defer func() { <-s.large }()
		case <-ctx.Done():
			return state, fault.Ended(ctx)
		}
	}
	err = s.write(ctx, "store records", func(t *tx) (err error) {
		if err := t.holds().Changes(at, changes); err != nil {
			return err
		}
		state, err = t.changeRecords(at, changes, words, limit, nowMS)
		if err != nil || len(events) == 0 {
			return err
		}
		key, err := t.key(encryption.Of{Project: at.Project})
		if err != nil {
			return err
		}
		return t.insertEvents(0, key, memory.Ref{Project: at.Project}, events)
	})
	if err != nil {
		return record.State{}, err
	}
	return state, nil
}

// changeRecords decides on all rows before it writes the first.
func (t *tx) changeRecords(at record.Space, changes []record.Change, words map[string]string, limit record.Limit, nowMS int64) (record.State, error) {
	space, err := readSpace(t.Conn, at)
	if err != nil {
		return space.state, err
	}
	numbers := map[string]int64{} // of the rows that are there
	var failed error
	next, changes, err := record.Decide(space.state, changes, limit, func(id string) (rev, size int64) {
		row, err := t.Conn.First("SELECT no, rev, size, body IS NULL FROM record WHERE space_no = ? AND id = ?", space.no, id)
		switch {
		case err != nil:
			failed = err
			return 0, 0
		case row == nil:
			return 0, 0
		}
		numbers[id] = row.Int(0)
		if row.Bool(3) {
			return 0, 0
		}
		return row.Int(1), row.Int(2)
	})
	switch {
	case failed != nil:
		return next, failed
	case err != nil, len(changes) == 0:
		return next, err
	}
	if space.no == 0 {
		space.no, err = t.Insert("INSERT INTO record_space (project, name, user_id, rev, n, bytes, whole) VALUES (?, ?, ?, ?, ?, ?, ?)",
			at.Project, at.Name, at.User, next.Rev, next.Count, next.Bytes, next.CompactedRev)
	} else {
		_, err = t.Exec("UPDATE record_space SET rev = ?, n = ?, bytes = ? WHERE no = ?", next.Rev, next.Count, next.Bytes, space.no)
	}
	if err != nil {
		return next, err
	}
	key, err := t.key(statements.KeyOf(at.Project, at.User))
	if err != nil {
		return next, err
	}
	for _, c := range changes {
		var body any // null for a deletion
		if c.Body != nil {
			body = key.Seal(c.Body, statements.RecordOwner(at, c.ID))
		}
		no, there := numbers[c.ID]
		if there {
			_, err = t.Exec("UPDATE record SET rev = ?, updated_ms = ?, size = ?, body = ? WHERE no = ?", next.Rev, nowMS, c.Size(), body, no)
		} else {
			no, err = t.Insert("INSERT INTO record (space_no, id, rev, updated_ms, size, body) VALUES (?, ?, ?, ?, ?, ?)", space.no, c.ID, next.Rev, nowMS, c.Size(), body)
		}
		if err != nil {
			return next, err
		}
		if err := t.insertWords(no, words[c.ID]); err != nil {
			return next, err
		}
	}
	return next, nil
}

// Record implements record.Store.
func (s *Store) Record(ctx context.Context, at record.Space, id string) (r record.Record, err error) {
	err = s.db.Read(ctx, "read records", func(c *dbfile.Conn) (err error) {
		r, err = statements.Record(reading{c}, s.sealer, at, id)
		return err
	})
	return r, err
}

// openRecord reads a row of id, rev, updated_ms and body.
func (s *Store) openRecord(row dbfile.Row, at record.Space) (r record.Record, err error) {
	r = record.Record{ID: row.Text(0), Rev: row.Int(1), UpdatedMS: row.Int(2), Deleted: row.Null(3)}
	if !r.Deleted {
		r.Body, err = statements.OpenRecord(s.sealer, row.Blob(3), at, r.ID)
	}
	return r, err
}

// Records implements record.Store.
func (s *Store) Records(ctx context.Context, at record.Space, q record.Query) (list []record.Record, state record.State, err error) {
	limit := int64(max(q.Limit, 1))
	err = s.db.Read(ctx, "read records", func(c *dbfile.Conn) error {
		space, err := readSpace(c, at)
		if err != nil {
			return err
		}
		state = space.state
		sql, args := "SELECT id, rev, updated_ms, body FROM record INDEXED BY record_id WHERE space_no = ? AND id > ? AND body IS NOT NULL ORDER BY id LIMIT ?+0",
			[]any{space.no, q.AfterID, limit}
		if q.ByRev {
			last, err := c.First("SELECT rev FROM record WHERE space_no = ? AND rev > ? ORDER BY rev LIMIT 1 OFFSET ?+0", space.no, q.AfterRev, limit-1)
			if err != nil {
				return err
			}
			upTo := int64(math.MaxInt64)
			if last != nil {
				upTo = last.Int(0)
			}
			sql, args = "SELECT id, rev, updated_ms, body FROM record INDEXED BY record_rev WHERE space_no = ? AND rev > ? AND rev <= ? ORDER BY rev, id", []any{space.no, q.AfterRev, upTo}
		}
		list, err = dbfile.Collect(c, func(row dbfile.Row) (record.Record, error) {
			r, err := s.openRecord(row, at)
			if err != nil && q.Broken {
				r.Body, err = nil, nil
			}
			return r, err
		}, sql, args...)
		return err
	})
	if err != nil {
		return nil, record.State{}, err
	}
	return list, state, nil
}

// RecordSpaces implements record.Store.
func (s *Store) RecordSpaces(ctx context.Context, project, prefix string, after record.Space, limit int) (list []record.Space, err error) {
	err = s.db.Read(ctx, "list spaces", func(c *dbfile.Conn) (err error) {
		list, err = statements.RecordSpaces(reading{c}, project, prefix, after, limit)
		return err
	})
	return list, err
}
