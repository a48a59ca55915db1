package sqlite

import (
	"bytes"
	"context"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
	"github.com/heardlog/heardlog/store/statements"
)

var (
	_ kv.Store   = (*Store)(nil)
	_ kv.Evicter = (*Store)(nil)
)

// keyRow is where the entries of a space are: by the agent's number, or by kv.Space.Owner under
// number 0.
type keyRow struct {
	no      int64
	project string
}

// spaceOf returns where a space's entries are.
func spaceOf(c *dbfile.Conn, s kv.Space) (keyRow, error) {
	if s.Agent == "" {
		return keyRow{project: s.Owner()}, nil
	}
	no, err := c.Number("SELECT no FROM agent WHERE project = ? AND id = ?", s.Project, s.Agent)
	if err == nil && no == 0 {
		err = noAgent(s.Agent)
	}
	return keyRow{no: no}, err
}

// PutKeys implements kv.Store. If the limit is reached, expired entries make room first, in slices
// between other calls.
func (s *Store) PutKeys(ctx context.Context, space kv.Space, entries []kv.Entry, limit kv.Limit, nowMS int64) error {
	return s.changeKeys(ctx, space, func(t *tx, at keyRow) (again bool, err error) {
		return t.putKeys(space, at, entries, limit, nowMS)
	})
}

// UpdateKey implements kv.Store.
func (s *Store) UpdateKey(ctx context.Context, space kv.Space, key string, once kv.Once, limit kv.Limit, nowMS int64, decide func(*kv.Entry) (kv.Entry, error)) (e kv.Entry, err error) {
	put := func(t *tx, space kv.Space, at keyRow, e kv.Entry, limit kv.Limit) (again bool, err error) {
		return t.putKeys(space, at, []kv.Entry{e}, limit, nowMS)
	}
	marks := space.Marks()
	marksAt := keyRow{project: marks.Owner()}
	err = s.changeKeys(ctx, space, func(t *tx, at keyRow) (again bool, err error) {
		if once.ID != "" {
			m, err := s.readKey(t.Conn, marks, marksAt, once.ID, nowMS)
			if err != nil {
				return false, err
			}
			if m != nil {
				e, err = once.Repeat(key, m.Value)
				return false, err
			}
		}
		old, err := s.readKey(t.Conn, space, at, key, nowMS)
		if err != nil {
			return false, err
		}
		if e, err = decide(old); err != nil {
			return false, err
		}
		if again, err = put(t, space, at, e, limit); again || err != nil || once.ID == "" {
			return again, err
		}
		m, err := once.Mark(&e, nowMS)
		if err != nil {
			return false, err
		}
		return put(t, marks, marksAt, m, kv.Limit{})
	})
	return e, err
}

// changeKeys runs fn where a space's entries are, in transactions, until it needs no other one.
func (s *Store) changeKeys(ctx context.Context, space kv.Space, fn func(t *tx, at keyRow) (again bool, err error)) error {
	if space.Agent != "" {
		if err := s.mustBeActive(ctx, space); err != nil {
			return err
		}
	}
	_, err := s.writeSlices(ctx, "store keys", func(t *tx) (_ int, again bool, err error) {
		at, err := spaceOf(t.Conn, space)
		if err == nil && at.no != 0 {
			var a memory.Agent
			if a, _, err = agentStatus(t.Conn, space.Project, space.Agent); err == nil {
				err = a.MustBeActive(fault.Stopped)
			}
		}
		if err == nil {
			again, err = fn(t, at)
		}
		return 0, again, err
	})
	return err
}

// mustBeActive fails if the space's agent is not active, with what its settings say about that.
func (s *Store) mustBeActive(ctx context.Context, space kv.Space) error {
	return s.readKeys(ctx, space, func(c *dbfile.Conn, at keyRow) error {
		row, err := c.Only(selectAgent+fromAgent+"WHERE a.no = ?", at.no)
		if err != nil {
			return err
		}
		_, h, err := readAgent(row, &s.sealer)
		if err != nil {
			return err
		}
		return h.Agent.MustBeActive(fault.Stopped)
	})
}

// putKeys stores entries, or deletes expired ones and asks to be called again. It decides on all
// before it writes the first.
func (t *tx) putKeys(space kv.Space, at keyRow, entries []kv.Entry, limit kv.Limit, nowMS int64) (again bool, err error) {
	numbers := make([]int64, len(entries)) // of the rows that are there
	moreKeys, moreSize := int64(len(entries)), int64(0)
	for i := range entries {
		old, err := t.Conn.First("SELECT no, size FROM kv WHERE agent_no = ? AND project = ? AND key = ?", at.no, at.project, entries[i].Key)
		if err != nil {
			return false, err
		}
		moreSize += entries[i].Size()
		if old != nil {
			numbers[i] = old.Int(0)
			moreKeys, moreSize = moreKeys-1, moreSize-old.Int(1)
		}
	}
	total, err := t.Conn.First("SELECT n, size FROM kv_total WHERE agent_no = ? AND project = ?", at.no, at.project)
	if err != nil {
		return false, err
	}
	keys, size := moreKeys, moreSize
	if total != nil {
		keys, size = keys+total.Int(0), size+total.Int(1)
	}
	if moreKeys == 0 && at.no == 0 {
		keys = 0 // an entry may be replaced however many there are
	}
	if full := limit.Check(space, keys, size); full != nil {
		n, _, err := t.dropKeys("kv_live WHERE agent_no = ? AND project = ? AND expires_ms <= ? AND "+statements.KeyNotHeld, nowMS, at.no, at.project, nowMS)
		if err != nil || n > 0 {
			return n > 0, err
		}
		return false, full
	}
	key, err := t.key(encryption.Of{Project: space.Project})
	if err != nil {
		return false, err
	}
	for i := range entries {
		e := &entries[i]
		sealed := key.Seal(e.Value, statements.KVOwner(space, e.Key))
		if numbers[i] != 0 {
			_, err = t.Exec("UPDATE kv SET size = ?, updated_ms = ?, expires_ms = ?, pinned = ?, used_ms = ?, uses = uses + 1, body = ? WHERE no = ?",
				e.Size(), e.UpdatedMS, e.ExpiresMS, e.Pinned, e.UpdatedMS, sealed, numbers[i])
		} else {
			err = t.insertKey(at, e, sealed)
		}
		if err != nil {
			return false, err
		}
	}
	return false, t.countKeys(at, moreKeys, moreSize)
}

func (t *tx) insertKey(at keyRow, e *kv.Entry, sealed []byte) error {
	_, err := t.Exec("INSERT INTO kv (agent_no, project, key, size, updated_ms, expires_ms, pinned, used_ms, uses, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1, ?)",
		at.no, at.project, e.Key, e.Size(), e.UpdatedMS, e.ExpiresMS, e.Pinned, e.UpdatedMS, sealed)
	return err
}

// countKeys adds to what is noted of a space. A space without keys has nothing noted.
func (t *tx) countKeys(at keyRow, keys, size int64) error {
	if keys == 0 && size == 0 {
		return nil
	}
	_, err := t.Exec("INSERT INTO kv_total (agent_no, project, n, size) VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n, size = size + excluded.size",
		at.no, at.project, keys, size)
	if err == nil && keys < 0 {
		_, err = t.Exec("DELETE FROM kv_total WHERE agent_no = ? AND project = ? AND n = 0", at.no, at.project)
	}
	return err
}

// clearBytes is how much a slice of a deletion deletes: to free a page costs little less than to
// write one.
const clearBytes = 2 << 20

// dropKeys deletes a slice of the entries that an index finds, and returns how many they were and
// how many had not expired.
func (t *tx) dropKeys(from string, nowMS int64, args ...any) (n, live int, err error) {
	type row struct {
		no, size, expires int64
		at                keyRow
	}
	var rows []row
	bytes := int64(0)
	err = t.Conn.Each("SELECT no, size, expires_ms, agent_no, project FROM kv INDEXED BY "+from+" LIMIT ?+0", append(args, int64(sweepRows)), func(r dbfile.Row) error {
		if bytes += r.Int(1); len(rows) == 0 || bytes <= clearBytes {
			rows = append(rows, row{r.Int(0), r.Int(1), r.Int(2), keyRow{r.Int(3), r.Text(4)}})
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	gone := map[keyRow]struct{ keys, size int64 }{}
	for _, r := range rows {
		if _, err := t.Exec("DELETE FROM kv WHERE no = ?", r.no); err != nil {
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
func (s *Store) readKeys(ctx context.Context, space kv.Space, fn func(c *dbfile.Conn, at keyRow) error) error {
	return s.db.Read(ctx, "read keys", func(c *dbfile.Conn) error {
		at, err := spaceOf(c, space)
		if err != nil {
			return err
		}
		return fn(c, at)
	})
}

// GetKeys implements kv.Store.
func (s *Store) GetKeys(ctx context.Context, space kv.Space, keys []string, nowMS int64) (found []kv.Entry, err error) {
	err = s.readKeys(ctx, space, func(c *dbfile.Conn, at keyRow) error {
		for _, key := range keys {
			e, err := s.readKey(c, space, at, key, nowMS)
			if err != nil {
				return err
			}
			if e != nil {
				found = append(found, *e)
			}
		}
		return nil
	})
	return found, err
}

// readKey returns the entry of a key, or nil if there is none.
func (s *Store) readKey(c *dbfile.Conn, space kv.Space, at keyRow, key string, nowMS int64) (*kv.Entry, error) {
	row, err := c.First("SELECT updated_ms, expires_ms, body, pinned FROM kv WHERE agent_no = ? AND project = ? AND key = ? AND expires_ms > ?", at.no, at.project, key, nowMS)
	if err != nil || row == nil {
		return nil, err
	}
	plain, err := s.sealer.Open(row.Blob(2), statements.KVOwner(space, key))
	return &kv.Entry{Key: key, Value: bytes.Clone(plain), UpdatedMS: row.Int(0), ExpiresMS: row.Int(1), Pinned: row.Bool(3)}, err
}

// DeleteKey implements kv.Store.
func (s *Store) DeleteKey(ctx context.Context, space kv.Space, name string, nowMS int64) (found bool, err error) {
	err = s.write(ctx, "delete a key", func(t *tx) error {
		at, err := spaceOf(t.Conn, space)
		if err == nil && at.no != 0 {
			err = t.holds().Agent(at.no)
		}
		if err != nil {
			return err
		}
		n, live, err := t.dropKeys("kv_key WHERE agent_no = ? AND project = ? AND key = ?", nowMS, at.no, at.project, name)
		found = n > 0 && live > 0
		return err
	})
	return found, err
}

// ListKeys implements kv.Store.
func (s *Store) ListKeys(ctx context.Context, space kv.Space, after string, limit int, nowMS int64) (page kv.Page, err error) {
	err = s.readKeys(ctx, space, func(c *dbfile.Conn, at keyRow) error {
		row, err := c.First(`SELECT coalesce(sum(n), 0), coalesce(sum(size), 0) FROM (SELECT n, size FROM kv_total WHERE agent_no = ?1 AND project = ?2
			UNION ALL SELECT -count(*), -coalesce(sum(size), 0) FROM kv INDEXED BY kv_live WHERE agent_no = ?1 AND project = ?2 AND expires_ms <= ?3)`, at.no, at.project, nowMS)
		if err != nil {
			return err
		}
		page = kv.Page{Total: int(row.Int(0)), Bytes: row.Int(1)}
		page.Keys, err = dbfile.Collect(c, func(row dbfile.Row) (kv.Key, error) {
			return kv.Key{Key: row.Text(0), Bytes: row.Int(1), UpdatedMS: row.Int(2), ExpiresMS: row.Int(3), Pinned: row.Bool(4), UsedMS: row.Int(5), Uses: row.Int(6)}, nil
		}, "SELECT key, size, updated_ms, expires_ms, pinned, used_ms, uses FROM kv INDEXED BY kv_key WHERE agent_no = ? AND project = ? AND key > ? AND expires_ms > ? ORDER BY key LIMIT ?+0",
			at.no, at.project, after, nowMS, int64(max(limit, 1)))
		return err
	})
	return page, err
}

// Spaces implements kv.Store.
func (s *Store) Spaces(ctx context.Context, project string) (spaces []kv.Space, err error) {
	where, args := "(a.no IS NOT NULL OR t.agent_no = 0 AND instr(t.project, '/') > 0 AND t.project NOT LIKE '~%')", []any(nil)
	if project != "" {
		// "0" follows the slash.
		where, args = "t.agent_no = 0 AND t.project > ? AND t.project < ?", []any{project + "/", project + "0"}
	}
	err = s.db.Read(ctx, "list namespaces", func(c *dbfile.Conn) (err error) {
		spaces, err = dbfile.Collect(c, func(row dbfile.Row) (kv.Space, error) {
			if id := row.Text(2); id != "" {
				return kv.Space{Project: row.Text(1), Agent: id}, nil
			}
			project, name, _ := strings.Cut(row.Text(0), "/")
			return kv.Space{Project: project, Name: name}, nil
		}, "SELECT t.project, coalesce(a.project, ''), coalesce(a.id, '') FROM kv_total t LEFT JOIN agent a ON a.no = t.agent_no WHERE t.n > 0 AND "+where+" ORDER BY t.project", args...)
		return err
	})
	return spaces, err
}

// ClearKeys implements kv.Store. Entries that are stored while it runs have higher numbers and
// stay, so that it ends.
func (s *Store) ClearKeys(ctx context.Context, space kv.Space, nowMS int64) (int, error) {
	var at keyRow
	var last int64
	err := s.readKeys(ctx, space, func(c *dbfile.Conn, found keyRow) (err error) {
		at = found
		last, err = c.Number("SELECT coalesce(max(no), 0) FROM kv WHERE agent_no = ? AND project = ?", at.no, at.project)
		return err
	})
	if err != nil {
		return 0, err
	}
	return s.writeSlices(ctx, "delete keys", func(t *tx) (int, bool, error) {
		if at.no != 0 {
			if err := t.holds().Agent(at.no); err != nil {
				return 0, false, err
			}
		}
		n, live, err := t.dropKeys("kv_key WHERE agent_no = ? AND project = ? AND no <= ?", nowMS, at.no, at.project, last)
		return live, n > 0, err
	})
}

// EvictKeys implements kv.Evicter.
func (s *Store) EvictKeys(ctx context.Context, space kv.Space, keys []kv.Key) (n int, err error) {
	err = s.eachKey(ctx, "evict keys", space, len(keys), func(t *tx, at keyRow, i int) error {
		if at.no != 0 {
			if err := t.holds().Agent(at.no); err != nil {
				return err
			}
		}
		k := &keys[i]
		gone, _, err := t.dropKeys("kv_key WHERE agent_no = ? AND project = ? AND key = ? AND pinned = 0 AND updated_ms = ?", 0, at.no, at.project, k.Key, k.UpdatedMS)
		n += gone
		return err
	})
	return n, err
}

// TouchKeys implements kv.Evicter.
func (s *Store) TouchKeys(ctx context.Context, space kv.Space, uses []kv.Use) error {
	return s.eachKey(ctx, "note reads of keys", space, len(uses), func(t *tx, at keyRow, i int) error {
		u := &uses[i]
		_, err := t.Exec("UPDATE kv SET used_ms = max(used_ms, ?), uses = uses + ? WHERE agent_no = ? AND project = ? AND key = ?", u.UsedMS, u.Uses, at.no, at.project, u.Key)
		return err
	})
}

// eachKey runs fn for each of n keys, in slices between other calls.
func (s *Store) eachKey(ctx context.Context, what string, space kv.Space, n int, fn func(t *tx, at keyRow, i int) error) error {
	next := 0
	_, err := s.writeSlices(ctx, what, func(t *tx) (int, bool, error) {
		at, err := spaceOf(t.Conn, space)
		end := min(n, next+sweepRows)
		for i := next; i < end && err == nil; i++ {
			err = fn(t, at, i)
		}
		if err == nil {
			next = end
		}
		return 0, next < n, err
	})
	return err
}

// SweepKeys implements kv.Store.
func (s *Store) SweepKeys(ctx context.Context, nowMS int64) (int, error) {
	return s.writeSlices(ctx, "delete keys", func(t *tx) (int, bool, error) {
		n, _, err := t.dropKeys("kv_expires WHERE expires_ms <= ? AND "+statements.KeyNotHeld, nowMS, nowMS)
		return n, n > 0, err
	})
}
