package sqlite

import (
	"bytes"
	"context"
	"database/sql/driver"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/kv"
)

var _ kv.Store = (*Store)(nil)

// keyRow is where the entries of a space are: by the agent's number, or by the project under number
// 0.
type keyRow struct {
	no      int64
	project string
}

// spaceOf returns where a space's entries are.
func spaceOf(c *conn, s kv.Space) (keyRow, error) {
	if s.Agent == "" {
		return keyRow{project: s.Project}, nil
	}
	no, err := c.number("SELECT no FROM agent WHERE project = ? AND id = ?", s.Project, s.Agent)
	if err == nil && no == 0 {
		err = noAgent(s.Agent)
	}
	return keyRow{no: no}, err
}

// PutKey implements kv.Store. If the limit is reached, expired entries make room first, in slices
// between other calls.
func (s *Store) PutKey(ctx context.Context, space kv.Space, e kv.Entry, limit kv.Limit, nowMS int64) error {
	if space.Agent != "" {
		if err := s.mustBeActive(ctx, space); err != nil {
			return err
		}
	}
	sealed := s.sealer.Seal(e.Value, kvOwner(space, e.Key)) // here, and not in the writer
	for again := true; again; {
		err := s.write(ctx, func(t *tx) (err error) {
			again, err = t.putKey(space, &e, sealed, limit, nowMS)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// mustBeActive fails if the space's agent is not active, with what its settings say about that.
func (s *Store) mustBeActive(ctx context.Context, space kv.Space) error {
	return s.readKeys(ctx, space, func(c *conn, at keyRow) error {
		h, err := readHead(c, &s.sealer, at.no)
		if err != nil {
			return err
		}
		return h.Agent.MustBeActive(fault.Stopped)
	})
}

// putKey stores an entry, or deletes expired ones and asks to be called again.
func (t *tx) putKey(space kv.Space, e *kv.Entry, sealed []byte, limit kv.Limit, nowMS int64) (again bool, err error) {
	at, err := spaceOf(t.w, space)
	if err != nil {
		return false, classify(err, "look for the agent")
	}
	if at.no != 0 {
		a, _, err := agentStatus(t.w, space.Project, space.Agent)
		if err != nil {
			return false, err
		}
		if err := a.MustBeActive(fault.Stopped); err != nil {
			return false, err
		}
	}
	old, err := t.w.first("SELECT no, size FROM kv WHERE agent_no = ? AND project = ? AND key = ?", at.no, at.project, e.Key)
	if err != nil {
		return false, classify(err, "look for a key")
	}
	total, err := t.w.first("SELECT n, size FROM kv_total WHERE agent_no = ? AND project = ?", at.no, at.project)
	if err != nil {
		return false, classify(err, "count keys")
	}
	moreKeys, moreSize := int64(1), e.Size()
	if old != nil {
		moreKeys, moreSize = 0, moreSize-integer(old[1])
	}
	keys, size := moreKeys, moreSize
	if total != nil {
		keys, size = keys+integer(total[0]), size+integer(total[1])
	}
	if moreKeys == 0 && at.no == 0 {
		keys = 0 // a conversation may be saved in the place of one however many there are
	}
	if full := limit.Check(space, keys, size); full != nil {
		n, _, err := t.dropKeys("kv_live WHERE agent_no = ? AND project = ? AND expires_ms <= ?", nowMS, at.no, at.project, nowMS)
		if err != nil || n > 0 {
			return n > 0, err
		}
		return false, full
	}
	if old != nil {
		_, _, err = t.exec("replace key", "UPDATE kv SET size = ?, updated_ms = ?, expires_ms = ?, body = ? WHERE no = ?", e.Size(), e.UpdatedMS, e.ExpiresMS, sealed, integer(old[0]))
	} else {
		_, _, err = t.exec("insert key", "INSERT INTO kv (agent_no, project, key, size, updated_ms, expires_ms, body) VALUES (?, ?, ?, ?, ?, ?, ?)",
			at.no, at.project, e.Key, e.Size(), e.UpdatedMS, e.ExpiresMS, sealed)
	}
	if err != nil {
		return false, err
	}
	return false, t.countKeys(at, moreKeys, moreSize)
}

// countKeys adds to what is noted of a space.
func (t *tx) countKeys(at keyRow, keys, size int64) error {
	_, _, err := t.exec("count keys", "INSERT INTO kv_total (agent_no, project, n, size) VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n, size = size + excluded.size",
		at.no, at.project, keys, size)
	return err
}

// clearBytes is how much a slice of a deletion deletes: to free a page costs little less than to
// write one.
const clearBytes = 2 << 20

// dropKeys deletes a slice of the entries that an index finds, and returns how many they were and
// how many had not expired.
func (t *tx) dropKeys(from string, nowMS int64, args ...driver.Value) (n, live int, err error) {
	type row struct {
		no, size, expires int64
		at                keyRow
	}
	var rows []row
	bytes := int64(0)
	err = t.w.each("SELECT no, size, expires_ms, agent_no, project FROM kv INDEXED BY "+from+" LIMIT ?+0", append(args, int64(sweepRows)), func(r []driver.Value) error {
		if bytes += integer(r[1]); len(rows) == 0 || bytes <= clearBytes {
			rows = append(rows, row{integer(r[0]), integer(r[1]), integer(r[2]), keyRow{integer(r[3]), text(r[4])}})
		}
		return nil
	})
	if err != nil {
		return 0, 0, classify(err, "look for keys")
	}
	gone := map[keyRow]struct{ keys, size int64 }{}
	for _, r := range rows {
		if _, _, err := t.exec("delete key", "DELETE FROM kv WHERE no = ?", r.no); err != nil {
			return 0, 0, err
		}
		sum := gone[r.at]
		sum.keys, sum.size = sum.keys+1, sum.size+r.size
		gone[r.at] = sum
		if r.expires > nowMS {
			live++
		}
	}
	for at, sum := range gone {
		if err := t.countKeys(at, -sum.keys, -sum.size); err != nil {
			return 0, 0, err
		}
	}
	return len(rows), live, nil
}

// readKeys runs fn where a space's entries are, all as of one moment.
func (s *Store) readKeys(ctx context.Context, space kv.Space, fn func(c *conn, at keyRow) error) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	err := s.readers.do(ctx, func(c *conn) error {
		at, err := spaceOf(c, space)
		if err != nil {
			return err
		}
		return fn(c, at)
	})
	return classify(err, "read keys")
}

// GetKey implements kv.Store.
func (s *Store) GetKey(ctx context.Context, space kv.Space, key string, nowMS int64) (e kv.Entry, err error) {
	err = s.readKeys(ctx, space, func(c *conn, at keyRow) error {
		row, err := c.first("SELECT updated_ms, expires_ms, body FROM kv WHERE agent_no = ? AND project = ? AND key = ? AND expires_ms > ?", at.no, at.project, key, nowMS)
		if err != nil {
			return err
		}
		if row == nil {
			return kv.ErrNoKey(space, key)
		}
		plain, err := s.sealer.Open(blob(row[2]), kvOwner(space, key))
		e = kv.Entry{Key: key, Value: bytes.Clone(plain), UpdatedMS: integer(row[0]), ExpiresMS: integer(row[1])}
		return err
	})
	return e, err
}

// DeleteKey implements kv.Store.
func (s *Store) DeleteKey(ctx context.Context, space kv.Space, name string, nowMS int64) (found bool, err error) {
	err = s.write(ctx, func(t *tx) error {
		at, err := spaceOf(t.w, space)
		if err != nil {
			return classify(err, "look for the agent")
		}
		n, live, err := t.dropKeys("kv_key WHERE agent_no = ? AND project = ? AND key = ?", nowMS, at.no, at.project, name)
		found = n > 0 && live > 0
		return err
	})
	return found, err
}

// ListKeys implements kv.Store.
func (s *Store) ListKeys(ctx context.Context, space kv.Space, after string, limit int, nowMS int64) (page kv.Page, err error) {
	err = s.readKeys(ctx, space, func(c *conn, at keyRow) error {
		row, err := c.first(`SELECT coalesce(sum(n), 0), coalesce(sum(size), 0) FROM (SELECT n, size FROM kv_total WHERE agent_no = ?1 AND project = ?2
			UNION ALL SELECT -count(*), -coalesce(sum(size), 0) FROM kv INDEXED BY kv_live WHERE agent_no = ?1 AND project = ?2 AND expires_ms <= ?3)`, at.no, at.project, nowMS)
		if err != nil {
			return err
		}
		page = kv.Page{Total: int(integer(row[0])), Bytes: integer(row[1])}
		return c.each("SELECT key, size, updated_ms, expires_ms FROM kv INDEXED BY kv_key WHERE agent_no = ? AND project = ? AND key > ? AND expires_ms > ? ORDER BY key LIMIT ?+0",
			[]driver.Value{at.no, at.project, after, nowMS, int64(max(limit, 1))}, func(row []driver.Value) error {
				page.Keys = append(page.Keys, kv.Key{Key: text(row[0]), Bytes: integer(row[1]), UpdatedMS: integer(row[2]), ExpiresMS: integer(row[3])})
				return nil
			})
	})
	return page, err
}

// ClearKeys implements kv.Store. Entries that are stored while it runs have higher numbers and
// stay, so that it ends.
func (s *Store) ClearKeys(ctx context.Context, space kv.Space, nowMS int64) (int, error) {
	var at keyRow
	var last int64
	err := s.readKeys(ctx, space, func(c *conn, found keyRow) (err error) {
		at = found
		last, err = c.number("SELECT coalesce(max(no), 0) FROM kv WHERE agent_no = ? AND project = ?", at.no, at.project)
		return err
	})
	if err != nil {
		return 0, err
	}
	return s.dropAll(ctx, func(t *tx) (int, int, error) {
		return t.dropKeys("kv_key WHERE agent_no = ? AND project = ? AND no <= ?", nowMS, at.no, at.project, last)
	})
}

// SweepKeys implements kv.Store.
func (s *Store) SweepKeys(ctx context.Context, nowMS int64) (int, error) {
	return s.dropAll(ctx, func(t *tx) (int, int, error) {
		n, _, err := t.dropKeys("kv_expires WHERE expires_ms <= ?", nowMS, nowMS)
		return n, n, err
	})
}

// dropAll deletes slice by slice until nothing is left, and adds up what each slice counts.
func (s *Store) dropAll(ctx context.Context, slice func(*tx) (n, counted int, err error)) (int, error) {
	for sum := 0; ; {
		n, counted := 0, 0
		err := s.write(ctx, func(t *tx) (err error) {
			n, counted, err = slice(t)
			return err
		})
		if err != nil {
			return sum, err
		}
		if n == 0 {
			return sum, nil
		}
		sum += counted
	}
}
