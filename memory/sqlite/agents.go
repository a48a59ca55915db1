package sqlite

import (
	"context"
	"database/sql/driver"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/codec"
	"github.com/heardlog/heardlog/memory/seal"
)

const selectAgent = `SELECT a.no, a.project, a.id, a.name, a.status, a.start_ms, a.stop_ms, a.message, a.rev, a.join_key, a.join_hash,
	a.head_rev, a.next_seq, a.last_turn FROM agent a `

// readAgent reads a row of selectAgent: all of a head but the agent's settings and properties and
// the last message.
func readAgent(row []driver.Value) (no int64, h memory.Head) {
	return integer(row[0]), memory.Head{
		Agent: memory.Agent{
			Project: text(row[1]), ID: text(row[2]), Name: text(row[3]), Status: memory.Status(integer(row[4])),
			StartMS: integer(row[5]), StopMS: integer(row[6]), Message: text(row[7]), Rev: integer(row[8]),
			JoinKey: text(row[9]), JoinHash: text(row[10]),
		},
		Rev: integer(row[11]), NextSeq: integer(row[12]), LastTurn: integer(row[13]),
	}
}

// readSettings reads an agent's settings and properties.
func readSettings(c *conn, s *seal.Sealer, no int64, a *memory.Agent) error {
	row, err := c.first("SELECT body FROM agent_settings WHERE agent_no = ?", no)
	if err != nil {
		return classify(err, "read settings")
	}
	if row == nil {
		return fault.Wrap(fault.Internal, errNoRow, "the store failed")
	}
	plain, err := s.Open(blob(row[0]), agentOwner(a.Project, a.ID))
	if err == nil {
		err = codec.DecodeAgent(plain, a)
	}
	return classify(err, "read settings")
}

// agentStatus returns an agent with nothing but its status, and its number, or fault.NotFound.
func agentStatus(c *conn, project, id string) (a memory.Agent, no int64, err error) {
	row, err := c.first("SELECT no, status FROM agent WHERE project = ? AND id = ?", project, id)
	if err == nil && row == nil {
		err = noAgent(id)
	}
	if err != nil {
		return a, 0, classify(err, "read agent")
	}
	return memory.Agent{Project: project, ID: id, Status: memory.Status(integer(row[1]))}, integer(row[0]), nil
}

// Load returns an agent's head and newest messages. No other process writes to the file, so known
// is not used.
func (s *Store) Load(ctx context.Context, project, id string, n int, _ memory.Version) (out memory.Stored, err error) {
	if ctx.Err() != nil {
		return out, ended(ctx)
	}
	err = s.readers.do(ctx, func(c *conn) error {
		row, err := c.first(selectAgent+"WHERE a.project = ? AND a.id = ?", project, id)
		if err != nil {
			return err
		}
		if row == nil {
			return noAgent(id)
		}
		out.No, out.Head = readAgent(row)
		if err := readSettings(c, &s.sealer, out.No, &out.Head.Agent); err != nil {
			return err
		}
		list, err := newestMessages(c, out.No, max(n, 1))
		if len(list) > 0 {
			out.Head.Last = list[len(list)-1]
		}
		out.Tail = list[max(len(list)-n, 0):]
		return err
	})
	return out, classify(err, "read agent")
}

// Scan calls each with the head of every live agent as of one moment.
func (s *Store) Scan(ctx context.Context, each func(memory.Head) error) error {
	var own error
	err := s.readers.do(ctx, func(c *conn) error {
		// The numbers first, by the index that holds only live agents: there are many ended ones.
		var nos []int64
		err := c.each("SELECT no FROM agent INDEXED BY agent_live WHERE status NOT IN (4, 6)", nil, func(row []driver.Value) error {
			nos = append(nos, integer(row[0]))
			return nil
		})
		if err != nil {
			return err
		}
		for _, no := range nos {
			if ctx.Err() != nil {
				return ended(ctx)
			}
			h, err := readHead(c, &s.sealer, no)
			if err != nil {
				return err
			}
			if own = each(h); own != nil {
				return own
			}
		}
		return nil
	})
	if own != nil {
		return own
	}
	return classify(err, "read live agents")
}

// readHead reads the head of the agent with that number, which must be there.
func readHead(c *conn, s *seal.Sealer, no int64) (h memory.Head, err error) {
	row, err := c.first(selectAgent+"WHERE a.no = ?", no)
	if err == nil && row == nil {
		err = errNoRow
	}
	if err != nil {
		return h, err
	}
	_, h = readAgent(row)
	if err := readSettings(c, s, no, &h.Agent); err != nil {
		return h, err
	}
	last, err := newestMessages(c, no, 1)
	if len(last) > 0 {
		h.Last = last[0]
	}
	return h, err
}

// Count returns how many agents have each status, as of the last commit.
func (s *Store) Count(context.Context) (out [memory.Statuses]int, err error) {
	if s.isClosed() {
		return out, errClosed()
	}
	for i := range out {
		out[i] = int(s.counts[i].Load())
	}
	return out, nil
}

// loadCounts reads what Count starts from.
func (s *Store) loadCounts() error {
	return s.writer.each("SELECT status, count(*) FROM agent INDEXED BY agent_state_start GROUP BY status", nil, func(row []driver.Value) error {
		if st := integer(row[0]); st >= 0 && int(st) < memory.Statuses {
			s.counts[st].Store(integer(row[1]))
		}
		return nil
	})
}

// count changes the number of agents of a status once the transaction is committed.
func (t *tx) count(status memory.Status, by int64) {
	if status < 0 || int(status) >= memory.Statuses {
		return
	}
	t.after = append(t.after, func() { t.s.counts[status].Add(by) })
}

// Ping writes a row and reads it back.
func (s *Store) Ping(ctx context.Context) error {
	now := time.Now().UTC().Format(time.RFC3339Nano)
	return s.write(ctx, func(t *tx) error {
		if _, _, err := t.exec("ping", "INSERT INTO meta (key, value) VALUES ('ping', ?) ON CONFLICT DO UPDATE SET value = excluded.value", now); err != nil {
			return err
		}
		row, err := t.w.first("SELECT value FROM meta WHERE key = 'ping'")
		if err == nil && (row == nil || text(row[0]) != now) {
			err = errNoRow
		}
		return classify(err, "ping")
	})
}
