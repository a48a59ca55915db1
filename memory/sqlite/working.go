package sqlite

import (
	"bytes"
	"context"
	"database/sql/driver"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

var _ memory.WorkingStore = (*Store)(nil)

// PutWorking stores an entry. Where the agent's limit is reached, what has expired makes room first, in slices between other calls.
func (s *Store) PutWorking(ctx context.Context, project, agentID string, e memory.WorkingEntry, limit memory.WorkingLimit, nowMS int64) error {
	if err := s.mustBeActive(ctx, project, agentID); err != nil {
		return err
	}
	sealed := s.sealer.Seal(e.Value, workingOwner(project, agentID, e.Key)) // here, and not in the writer
	for again := true; again; {
		err := s.write(ctx, func(t *tx) (err error) {
			again, err = t.putWorking(project, agentID, &e, sealed, limit, nowMS)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// mustBeActive fails if the agent is not active, with what its settings say about that.
func (s *Store) mustBeActive(ctx context.Context, project, agentID string) error {
	return s.readWorking(ctx, project, agentID, func(c *conn, no int64) error {
		h, err := readHead(c, &s.sealer, no)
		if err != nil {
			return err
		}
		return h.Agent.MustBeActive(fault.Stopped)
	})
}

// putWorking stores an entry, or makes room for it and asks to be called again.
func (t *tx) putWorking(project, agentID string, e *memory.WorkingEntry, sealed []byte, limit memory.WorkingLimit, nowMS int64) (again bool, err error) {
	a, no, err := agentStatus(t.w, project, agentID)
	if err != nil {
		return false, err
	}
	if err := a.MustBeActive(fault.Stopped); err != nil {
		return false, err
	}
	old, err := t.w.first("SELECT no, size FROM working WHERE agent_no = ? AND key = ?", no, e.Key)
	if err != nil {
		return false, classify(err, "look for a key")
	}
	total, err := t.w.first("SELECT n, size FROM working_total WHERE agent_no = ?", no)
	if err != nil {
		return false, classify(err, "look at the working memory")
	}
	moreKeys, moreSize := int64(1), e.Size()
	if old != nil {
		moreKeys, moreSize = 0, moreSize-integer(old[1])
	}
	keys, size := moreKeys, moreSize
	if total != nil {
		keys, size = keys+integer(total[0]), size+integer(total[1])
	}
	if full := limit.Check(keys, size); full != nil {
		n, _, err := t.dropWorking("working_live WHERE agent_no = ? AND expires_ms <= ?", nowMS, no, nowMS)
		if err != nil || n > 0 {
			return n > 0, err
		}
		return false, full
	}
	if old != nil {
		_, _, err = t.exec("replace key", "UPDATE working SET size = ?, updated_ms = ?, expires_ms = ?, body = ? WHERE no = ?", e.Size(), e.UpdatedMS, e.ExpiresMS, sealed, integer(old[0]))
	} else {
		_, _, err = t.exec("insert key", "INSERT INTO working (agent_no, key, size, updated_ms, expires_ms, body) VALUES (?, ?, ?, ?, ?, ?)",
			no, e.Key, e.Size(), e.UpdatedMS, e.ExpiresMS, sealed)
	}
	if err != nil {
		return false, err
	}
	return false, t.totalWorking(no, moreKeys, moreSize)
}

// totalWorking moves what is stored of an agent's.
func (t *tx) totalWorking(no, keys, size int64) error {
	_, _, err := t.exec("count keys", "INSERT INTO working_total (agent_no, n, size) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n, size = size + excluded.size", no, keys, size)
	return err
}

// dropWorking takes a slice of the entries away that an index gives, and tells how many they were and how many of them had not expired.
func (t *tx) dropWorking(from string, nowMS int64, args ...driver.Value) (n, live int, err error) {
	type row struct{ no, agent, size, expires int64 }
	var rows []row
	bytes := int64(0)
	err = t.w.each("SELECT no, agent_no, size, expires_ms FROM working INDEXED BY "+from+" LIMIT ?+0", append(args, int64(sweepRows)), func(r []driver.Value) error {
		if bytes += integer(r[2]); len(rows) == 0 || bytes <= clearBytes {
			rows = append(rows, row{integer(r[0]), integer(r[1]), integer(r[2]), integer(r[3])})
		}
		return nil
	})
	if err != nil {
		return 0, 0, classify(err, "look for keys")
	}
	gone := map[int64]struct{ keys, size int64 }{}
	for _, r := range rows {
		if _, _, err := t.exec("delete key", "DELETE FROM working WHERE no = ?", r.no); err != nil {
			return 0, 0, err
		}
		sum := gone[r.agent]
		sum.keys, sum.size = sum.keys+1, sum.size+r.size
		gone[r.agent] = sum
		if r.expires > nowMS {
			live++
		}
	}
	for agent, sum := range gone {
		if err := t.totalWorking(agent, -sum.keys, -sum.size); err != nil {
			return 0, 0, err
		}
	}
	return len(rows), live, nil
}

// readWorking runs fn on an agent's number, all of one moment.
func (s *Store) readWorking(ctx context.Context, project, agentID string, fn func(c *conn, no int64) error) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	err := s.readers.do(ctx, func(c *conn) error {
		no, err := c.number("SELECT no FROM agent WHERE project = ? AND id = ?", project, agentID)
		if err == nil && no == 0 {
			err = noAgent(agentID)
		}
		if err != nil {
			return err
		}
		return fn(c, no)
	})
	return classify(err, "read the working memory")
}

// Working gives an entry.
func (s *Store) Working(ctx context.Context, project, agentID, key string, nowMS int64) (e memory.WorkingEntry, err error) {
	err = s.readWorking(ctx, project, agentID, func(c *conn, no int64) error {
		row, err := c.first("SELECT updated_ms, expires_ms, body FROM working WHERE agent_no = ? AND key = ? AND expires_ms > ?", no, key, nowMS)
		if err != nil {
			return err
		}
		if row == nil {
			return memory.ErrNoWorking(key)
		}
		plain, err := s.sealer.Open(blob(row[2]), workingOwner(project, agentID, key))
		e = memory.WorkingEntry{Key: key, Value: bytes.Clone(plain), UpdatedMS: integer(row[0]), ExpiresMS: integer(row[1])}
		return err
	})
	return e, err
}

// DeleteWorking takes an entry away.
func (s *Store) DeleteWorking(ctx context.Context, project, agentID, name string, nowMS int64) (found bool, err error) {
	err = s.write(ctx, func(t *tx) error {
		_, no, err := agentStatus(t.w, project, agentID)
		if err != nil {
			return err
		}
		n, live, err := t.dropWorking("working_key WHERE agent_no = ? AND key = ?", nowMS, no, name)
		found = n > 0 && live > 0
		return err
	})
	return found, err
}

// WorkingKeys lists an agent's keys.
func (s *Store) WorkingKeys(ctx context.Context, project, agentID, after string, limit int, nowMS int64) (page memory.WorkingPage, err error) {
	err = s.readWorking(ctx, project, agentID, func(c *conn, no int64) error {
		row, err := c.first("SELECT count(*), coalesce(sum(size), 0) FROM working INDEXED BY working_live WHERE agent_no = ? AND expires_ms > ?", no, nowMS)
		if err != nil {
			return err
		}
		page = memory.WorkingPage{Total: int(integer(row[0])), Bytes: integer(row[1])}
		return c.each("SELECT key, size, updated_ms, expires_ms FROM working INDEXED BY working_key WHERE agent_no = ? AND key > ? AND expires_ms > ? ORDER BY key LIMIT ?+0",
			[]driver.Value{no, after, nowMS, int64(max(limit, 1))}, func(row []driver.Value) error {
				page.Keys = append(page.Keys, memory.WorkingKey{Key: text(row[0]), Bytes: integer(row[1]), UpdatedMS: integer(row[2]), ExpiresMS: integer(row[3])})
				return nil
			})
	})
	return page, err
}

// ClearWorking takes all of an agent's entries away, in slices between other calls.
func (s *Store) ClearWorking(ctx context.Context, project, agentID string, nowMS int64) (int, error) {
	return s.dropAll(ctx, func(t *tx) (int, int, error) {
		_, no, err := agentStatus(t.w, project, agentID)
		if err != nil {
			return 0, 0, err
		}
		return t.dropWorking("working_live WHERE agent_no = ?", nowMS, no)
	})
}

// SweepWorking erases what has expired, in slices between other calls.
func (s *Store) SweepWorking(ctx context.Context, nowMS int64) (int, error) {
	return s.dropAll(ctx, func(t *tx) (int, int, error) {
		n, _, err := t.dropWorking("working_expires WHERE expires_ms <= ?", nowMS, nowMS)
		return n, n, err
	})
}

// dropAll runs a slice of a deletion until there is nothing left of it, and adds up what each counts.
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
