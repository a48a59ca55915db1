package sqlite

import (
	"context"
	"database/sql/driver"

	"github.com/heardlog/heardlog/memory"
)

// Sizes of the slices in which a sweep goes through the committer: a few ms each.
const (
	sweepAgents = 16
	sweepLook   = 64 // ended agents looked at for those: what waits for an endpoint may keep many
	sweepRows   = 512
)

// Sweep erases agents that ended before the time. An agent is gone for everybody at once; its rows follow in slices, each a call of its own
// between other calls. A sweep that was cut short, by the end of the process too, is finished by the next one.
func (s *Store) Sweep(ctx context.Context, beforeMS int64, limit int) (int, error) {
	erased := 0
	if err := s.eraseRows(ctx); err != nil {
		return 0, err
	}
	at := sweepPlace{}
	for more := true; more && erased < limit; {
		n, next := 0, at
		err := s.do(ctx, func(g *group) (err error) {
			n, next, more, err = g.eraseAgents(beforeMS, at, min(sweepAgents, limit-erased))
			return err
		})
		if err != nil {
			return erased, err
		}
		at, erased = next, erased+n
		if n == 0 {
			continue
		}
		if err := s.eraseRows(ctx); err != nil {
			return erased, err
		}
	}
	return erased, nil
}

// sweepPlace is how far a sweep came, in the order in which agents ended.
type sweepPlace struct{ stopMS, no int64 }

// eraseAgents takes agents away that ended after the place and notes that their rows are to follow. It gives their number, the new place, and
// whether there may be more.
func (g *group) eraseAgents(beforeMS int64, at sweepPlace, limit int) (n int, next sweepPlace, more bool, err error) {
	type found struct {
		no     int64
		k      key
		status memory.Status
		at     sweepPlace
		waits  bool // something is still to be sent of it
	}
	var list []found
	err = g.w.each(`SELECT a.no, a.project, a.id, a.status, a.stop_ms,
			EXISTS (SELECT 1 FROM event e JOIN delivery d ON d.event_no = e.no WHERE e.agent_no = a.no AND d.state = 0)
		FROM agent a WHERE a.status IN (4, 6) AND a.stop_ms >= ? AND a.stop_ms < ? AND (a.stop_ms, a.no) > (?, ?)
		ORDER BY a.stop_ms, a.no LIMIT ?+0`, []driver.Value{at.stopMS, beforeMS, at.stopMS, at.no, int64(sweepLook)}, func(row []driver.Value) error {
		no := integer(row[0])
		list = append(list, found{no, key{text(row[1]), text(row[2])}, memory.Status(integer(row[3])), sweepPlace{integer(row[4]), no}, integer(row[5]) != 0})
		return nil
	})
	if err != nil {
		return 0, at, false, classify(err, "look for ended agents")
	}
	for i, f := range list {
		if n == limit {
			return n, list[i-1].at, true, nil
		}
		at = f.at
		if f.waits {
			continue
		}
		if err := g.eraseAgent(f.no, f.k, f.status); err != nil {
			return 0, at, false, err
		}
		n++
	}
	return n, at, len(list) == sweepLook, nil
}

// eraseAgent takes one agent away and notes that its rows are to follow.
func (g *group) eraseAgent(no int64, k key, status memory.Status) error {
	for _, sql := range []string{
		"INSERT INTO erased (agent_no) VALUES (?)", "DELETE FROM agent_settings WHERE agent_no = ?",
		"DELETE FROM agent_key WHERE agent_no = ?", "DELETE FROM agent WHERE no = ?",
	} {
		if _, _, err := g.exec("erase agent", sql, no); err != nil {
			return err
		}
	}
	g.pages += 8
	g.count(status, -1)
	delete(g.works, k)
	delete(g.touched, k)
	g.erased = append(g.erased, k)
	return nil
}

// Erase takes an agent away with all that belongs to it. What is still to be sent of it goes in the same transaction as the agent; the other rows follow
// before it returns, or with the next sweep if the process ends.
func (s *Store) Erase(ctx context.Context, project, id string) error {
	k := key{project, id}
	err := s.do(ctx, func(g *group) error {
		v, err := g.view(k)
		if err != nil {
			return err
		}
		for _, sql := range []string{
			`DELETE FROM attempt WHERE delivery_id IN (SELECT d.id FROM delivery d JOIN event e ON d.event_no = e.no WHERE e.agent_no = ? AND d.state = 0)`,
			`DELETE FROM delivery WHERE id IN (SELECT d.id FROM delivery d JOIN event e ON d.event_no = e.no WHERE e.agent_no = ? AND d.state = 0)`,
		} {
			n, _, err := g.exec("erase deliveries", sql, v.no)
			if err != nil {
				return err
			}
			g.pages += 2 * int(n)
		}
		return g.eraseAgent(v.no, k, v.head.Agent.Status)
	})
	if err != nil {
		return err
	}
	return s.eraseRows(context.WithoutCancel(ctx))
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
			if n, _, err := g.dropWorking("working_key WHERE agent_no = ?", 0, no); err != nil || n > 0 {
				return err // the next slice goes on here
			}
			for _, sql := range []string{
				"DELETE FROM item WHERE no IN (SELECT no FROM item WHERE agent_no = ? LIMIT ?)",
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
			if _, _, err := g.exec("erase rows", "DELETE FROM working_total WHERE agent_no = ?", no); err != nil {
				return err
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
