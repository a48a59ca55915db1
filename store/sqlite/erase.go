package sqlite

import (
	"context"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
	"github.com/heardlog/heardlog/store/statements"
)

// Sizes of the slices in which a sweep goes through the writer: a few milliseconds each.
const (
	sweepAgents = 16
	sweepLook   = 64 // ended agents read for those, since pending deliveries may keep many
	sweepRows   = 512
)

// Erase erases one agent, or agents that ended before a time. An agent is gone for everybody at
// once. Its rows follow in slices, between the writes of others. If the process ends before that,
// the next Erase finishes it.
func (s *Store) Erase(ctx context.Context, e memory.Erasure) ([]memory.Ref, error) {
	if e.Ref != (memory.Ref{}) {
		if err := s.eraseOne(ctx, e.Ref); err != nil {
			return nil, err
		}
		return []memory.Ref{e.Ref}, s.eraseRows(context.WithoutCancel(ctx))
	}
	if err := s.eraseRows(ctx); err != nil {
		return nil, err
	}
	var gone []memory.Ref
	at := sweepPlace{}
	for more := true; more && len(gone) < e.Limit; {
		var slice []memory.Ref
		next := at
		err := s.write(ctx, "erase agents", func(t *tx) (err error) {
			slice, next, more, err = t.eraseEnded(e.BeforeMS, at, min(sweepAgents, e.Limit-len(gone)))
			return err
		})
		s.changed.note()
		if err != nil {
			return gone, err
		}
		at, gone = next, append(gone, slice...)
		if len(slice) == 0 {
			continue
		}
		if err := s.eraseRows(ctx); err != nil {
			return gone, err
		}
	}
	return gone, nil
}

// sweepPlace is how far a sweep has come, in the order in which agents ended.
type sweepPlace struct{ stopMS, no int64 }

// eraseEnded erases at most limit agents that ended after the place. It returns them, the new
// place, and whether there may be more.
func (t *tx) eraseEnded(beforeMS int64, at sweepPlace, limit int) (gone []memory.Ref, next sweepPlace, more bool, err error) {
	type found struct {
		ref    memory.Ref
		status memory.Status
		at     sweepPlace
		waits  bool // for a delivery, or is under hold
	}
	list, err := dbfile.Collect(t.Conn, func(row dbfile.Row) (found, error) {
		return found{
			memory.Ref{Project: row.Text(1), ID: row.Text(2)}, memory.Status(row.Int(3)),
			sweepPlace{row.Int(4), row.Int(0)}, row.Bool(5),
		}, nil
	}, `SELECT a.no, a.project, a.id, a.status, a.stop_ms,
			EXISTS (SELECT 1 FROM event e JOIN delivery d ON d.event_no = e.no WHERE e.agent_no = a.no AND d.state = 0)
			OR NOT `+statements.NotHeld+` FROM agent a WHERE a.status IN (4, 6) AND a.stop_ms >= ? AND a.stop_ms < ? AND (a.stop_ms, a.no) > (?, ?)
		ORDER BY a.stop_ms, a.no LIMIT ?+0`, at.stopMS, beforeMS, at.stopMS, at.no, int64(sweepLook))
	if err != nil {
		return nil, at, false, err
	}
	for _, f := range list {
		if len(gone) == limit {
			return gone, at, true, nil
		}
		at = f.at
		if f.waits {
			continue
		}
		if err := t.eraseAgent(f.at.no, f.status); err != nil {
			return nil, at, false, err
		}
		gone = append(gone, f.ref)
	}
	return gone, at, len(list) == sweepLook, nil
}

// eraseOne erases an agent and the deliveries about it that are pending.
func (s *Store) eraseOne(ctx context.Context, ref memory.Ref) error {
	defer s.changed.note()
	return s.write(ctx, "erase an agent", func(t *tx) error {
		a, no, err := agentStatus(t.Conn, ref.Project, ref.ID)
		if err != nil {
			return err
		}
		if err := t.holds().Erase(ref.Project, no); err != nil {
			return err
		}
		err = t.ExecEach(no,
			`DELETE FROM attempt WHERE delivery_id IN (SELECT d.id FROM delivery d JOIN event e ON d.event_no = e.no WHERE e.agent_no = ? AND d.state = 0)`,
			`DELETE FROM delivery WHERE id IN (SELECT d.id FROM delivery d JOIN event e ON d.event_no = e.no WHERE e.agent_no = ? AND d.state = 0)`)
		if err != nil {
			return err
		}
		return t.eraseAgent(no, a.Status)
	})
}

// eraseAgent erases an agent and notes that its rows are to follow.
func (t *tx) eraseAgent(no int64, status memory.Status) error {
	t.count(status, -1)
	return t.ExecEach(no, dueErased, statements.ErasedObjects, "INSERT INTO erased (agent_no) VALUES (?)", "DELETE FROM agent_settings WHERE agent_no = ?",
		"DELETE FROM agent_key WHERE agent_no = ?", "DELETE FROM agent_tag WHERE agent_no = ?", "DELETE FROM agent WHERE no = ?")
}

// eraseRows erases the rows of agents that are gone.
func (s *Store) eraseRows(ctx context.Context) error {
	_, err := s.writeSlices(ctx, "erase rows", func(t *tx) (_ int, more bool, err error) {
		row, err := t.Conn.First("SELECT agent_no FROM erased LIMIT 1")
		if err != nil || row == nil {
			return 0, false, err
		}
		no := row.Int(0)
		if n, _, err := t.dropKeys("kv_key WHERE agent_no = ?", 0, no); err != nil || n > 0 {
			return 0, true, err // the next slice goes on here
		}
		for _, sql := range []string{
			"DELETE FROM item WHERE no IN (SELECT no FROM item WHERE agent_no = ? LIMIT ?)",
			"DELETE FROM message WHERE id IN (SELECT id FROM message WHERE agent_no = ? LIMIT ?)",
			`DELETE FROM attempt WHERE delivery_id IN (SELECT d.id FROM delivery d JOIN event e ON d.event_no = e.no
				WHERE e.agent_no = ? AND EXISTS (SELECT 1 FROM attempt t WHERE t.delivery_id = d.id) LIMIT ?)`,
			"DELETE FROM delivery WHERE id IN (SELECT d.id FROM delivery d JOIN event e ON d.event_no = e.no WHERE e.agent_no = ? LIMIT ?)",
			"DELETE FROM event WHERE no IN (SELECT no FROM event WHERE agent_no = ? LIMIT ?)",
		} {
			if n, err := t.Exec(sql, no, int64(sweepRows)); err != nil || n >= sweepRows {
				return 0, true, err
			}
		}
		return 0, true, t.ExecEach(no, "DELETE FROM kv_total WHERE agent_no = ?", "DELETE FROM erased WHERE agent_no = ?")
	})
	return err
}

// ForgetDone implements webhook.Log.
func (s *Store) ForgetDone(ctx context.Context, beforeMS int64, agentless bool) (int, error) {
	erased, err := s.writeSlices(ctx, "forget deliveries", func(t *tx) (int, bool, error) {
		n, err := t.forgetDone(beforeMS, agentless)
		return n, n == forgetRows, err
	})
	if err != nil {
		return erased, err
	}
	return erased, s.write(ctx, "forget replays", func(t *tx) error {
		if err := t.ExecEach(beforeMS, "DELETE FROM replay WHERE done = 1 AND now_ms < ?"); err != nil {
			return err
		}
		return t.dropEndpoints()
	})
}

// forgetRows is smaller than sweepRows because a delivery goes with its event and its attempts,
// which have up to 16 KiB each.
const forgetRows = 64

func (t *tx) forgetDone(beforeMS int64, agentless bool) (int, error) {
	type old struct{ id, event int64 }
	list, err := dbfile.Collect(t.Conn, func(row dbfile.Row) (old, error) { return old{row.Int(0), row.Int(1)}, nil },
		`SELECT id, event_no FROM delivery WHERE state <> 0 AND done_ms < ?
		AND (? = 0 OR (SELECT agent_no FROM event WHERE no = event_no) = 0) AND `+statements.DeliveryNotHeld+` ORDER BY done_ms LIMIT ?+0`, beforeMS, agentless, int64(forgetRows))
	if err != nil {
		return 0, err
	}
	for _, r := range list {
		if err := t.ExecEach(r.id, "DELETE FROM attempt WHERE delivery_id = ?", "DELETE FROM delivery WHERE id = ?"); err != nil {
			return 0, err
		}
		if err := t.ExecEach(r.event, "DELETE FROM event WHERE no = ? AND NOT EXISTS (SELECT 1 FROM delivery WHERE event_no = event.no)"); err != nil {
			return 0, err
		}
	}
	return len(list), nil
}
