package sqlite

import (
	"context"
	"database/sql/driver"

	"github.com/heardlog/heardlog/memory"
)

// Sizes of the slices in which a sweep goes through the committer: a few ms each.
const (
	sweepAgents = 16
	sweepRows   = 512
)

// Sweep erases agents that ended before the time. An agent is gone for everybody at once; its rows follow in slices, each a call of its own
// between other calls. A sweep that was cut short, by the end of the process too, is finished by the next one.
func (s *Store) Sweep(ctx context.Context, beforeMS int64, limit int) (int, error) {
	erased := 0
	if err := s.eraseRows(ctx); err != nil {
		return 0, err
	}
	for erased < limit {
		n := 0
		err := s.do(ctx, func(g *group) (err error) {
			n, err = g.eraseAgents(beforeMS, min(sweepAgents, limit-erased))
			return err
		})
		if err != nil {
			return erased, err
		}
		erased += n
		if err := s.eraseRows(ctx); err != nil {
			return erased, err
		}
		if n == 0 {
			break
		}
	}
	return erased, nil
}

// eraseAgents takes agents away and notes that their rows are to follow.
func (g *group) eraseAgents(beforeMS int64, limit int) (int, error) {
	type found struct {
		no     int64
		k      key
		status memory.Status
	}
	var list []found
	err := g.w.each(`SELECT a.no, a.project, a.id, a.status FROM agent a WHERE a.status IN (4, 6) AND a.stop_ms < ?
		AND NOT EXISTS (SELECT 1 FROM event e JOIN delivery d ON d.event_no = e.no WHERE e.agent_no = a.no AND d.state = 0)
		ORDER BY a.stop_ms LIMIT ?`, []driver.Value{beforeMS, int64(limit)}, func(row []driver.Value) error {
		list = append(list, found{integer(row[0]), key{text(row[1]), text(row[2])}, memory.Status(integer(row[3]))})
		return nil
	})
	if err != nil {
		return 0, classify(err, "look for ended agents")
	}
	for _, f := range list {
		for _, sql := range []string{
			"INSERT INTO erased (agent_no) VALUES (?)", "DELETE FROM agent_settings WHERE agent_no = ?",
			"DELETE FROM agent_key WHERE agent_no = ?", "DELETE FROM agent WHERE no = ?",
		} {
			if _, _, err := g.exec("erase agent", sql, f.no); err != nil {
				return 0, err
			}
		}
		g.pages += 8
		g.count(f.status, -1)
		delete(g.works, f.k)
		delete(g.touched, f.k)
		g.erased = append(g.erased, f.k)
	}
	return len(list), nil
}

// eraseRows erases what belonged to agents that are gone.
func (s *Store) eraseRows(ctx context.Context) error {
	for more := true; more; {
		err := s.do(ctx, func(g *group) error {
			more = false
			row, err := g.w.first("SELECT agent_no FROM erased LIMIT 1")
			if err != nil || row == nil {
				return classify(err, "look for erased agents")
			}
			more = true
			no := integer(row[0])
			for _, sql := range []string{
				"DELETE FROM message WHERE id IN (SELECT id FROM message WHERE agent_no = ? LIMIT ?)",
				`DELETE FROM attempt WHERE delivery_id IN (SELECT d.id FROM delivery d JOIN event e ON d.event_no = e.no
					WHERE e.agent_no = ? AND EXISTS (SELECT 1 FROM attempt t WHERE t.delivery_id = d.id) LIMIT ?)`,
				"DELETE FROM delivery WHERE id IN (SELECT d.id FROM delivery d JOIN event e ON d.event_no = e.no WHERE e.agent_no = ? LIMIT ?)",
				"DELETE FROM event WHERE no IN (SELECT no FROM event WHERE agent_no = ? LIMIT ?)",
			} {
				n, _, err := g.exec("erase rows", sql, no, int64(sweepRows))
				if err != nil {
					return err
				}
				g.pages += int(n) * 2
				if n >= sweepRows {
					return nil // the next slice goes on here
				}
			}
			_, _, err = g.exec("erase rows", "DELETE FROM erased WHERE agent_no = ?", no)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
