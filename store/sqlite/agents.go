package sqlite

import (
	"cmp"
	"context"
	"fmt"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/codec"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
	"github.com/heardlog/heardlog/store/statements"
)

const selectAgent = `SELECT a.no, a.project, a.id, a.name, a.status, a.start_ms, a.stop_ms, a.message, a.rev, a.join_key, a.join_hash,
	a.head_rev, a.next_seq, a.last_turn, a.tally, s.body `

// fromAgent selects from the table of agents, with their settings.
const fromAgent = "FROM agent a LEFT JOIN agent_settings s ON s.agent_no = a.no "

// readAgent reads a row of selectAgent: all of a head but the last message.
func readAgent(row dbfile.Row, s *encryption.Sealer) (no int64, h memory.Head, err error) {
	h = memory.Head{
		Agent: &memory.Agent{
			Project: row.Text(1), ID: row.Text(2), Name: row.Text(3), Status: memory.Status(row.Int(4)),
			StartMS: row.Int(5), StopMS: row.Int(6), Message: row.Text(7), Rev: row.Int(8),
			JoinKey: row.Text(9), JoinHash: row.Text(10),
		},
		Rev: row.Int(11), NextSeq: row.Int(12), LastTurn: row.Int(13),
	}
	if h.Tally, err = memory.DecodeTally(row.Blob(14)); err != nil {
		return 0, h, fmt.Errorf("tally of agent %s: %w", h.Agent.ID, err)
	}
	plain, err := s.Open(row.Blob(15), statements.AgentOwner(h.Agent.Project, h.Agent.ID))
	if err == nil {
		err = codec.DecodeAgent(plain, h.Agent)
	}
	if err != nil {
		err = fmt.Errorf("settings of agent %s: %w", h.Agent.ID, err)
	}
	return row.Int(0), h, err
}

func noAgent(id string) error { return fault.New(fault.NotFound, "there is no agent %q", id) }

// agentStatus returns an agent with nothing but its status, and its number, or fault.NotFound.
func agentStatus(c *dbfile.Conn, project, id string) (a memory.Agent, no int64, err error) {
	row, err := c.First("SELECT no, status FROM agent WHERE project = ? AND id = ?", project, id)
	if err == nil && row == nil {
		err = noAgent(id)
	}
	if err != nil {
		return a, 0, err
	}
	return memory.Agent{Project: project, ID: id, Status: memory.Status(row.Int(1))}, row.Int(0), nil
}

// Load returns an agent's head and newest messages. No other process writes to the file, so known
// is not used.
func (s *Store) Load(ctx context.Context, project, id string, n int, _ memory.Version) (out memory.Stored, err error) {
	err = s.db.Read(ctx, "read agent", func(c *dbfile.Conn) error {
		row, err := c.First(selectAgent+fromAgent+"WHERE a.project = ? AND a.id = ?", project, id)
		if err == nil && row == nil {
			err = noAgent(id)
		}
		if err != nil {
			return err
		}
		if out.No, out.Head, err = readAgent(row, &s.sealer); err != nil {
			return err
		}
		list, err := s.newestMessages(c, out.No, max(n, 1))
		if len(list) > 0 {
			out.Head.Last = list[len(list)-1]
		}
		out.Tail = list[max(len(list)-n, 0):]
		return err
	})
	return out, err
}

// Scan calls each for every live agent as of one moment.
func (s *Store) Scan(ctx context.Context, each func(memory.Head) error) error {
	var own error
	err := s.db.Read(ctx, "read live agents", func(c *dbfile.Conn) error {
		// By the index that holds only live agents: there are many ended ones.
		return c.Each(selectAgent+"FROM agent a INDEXED BY agent_live LEFT JOIN agent_settings s ON s.agent_no = a.no WHERE a.status NOT IN (4, 6)", nil, func(row dbfile.Row) error {
			if ctx.Err() != nil {
				return fault.Ended(ctx)
			}
			_, h, err := readAgent(row, &s.sealer)
			if err == nil {
				own = each(h)
			}
			return cmp.Or(err, own)
		})
	})
	if own != nil {
		return own
	}
	return err
}

// Count returns how many agents have each status, as of the last commit.
func (s *Store) Count(context.Context) (out [memory.Statuses]int, err error) {
	if s.db.Closed() {
		return out, dbfile.ErrClosed()
	}
	for i := range out {
		out[i] = int(s.counts[i].Load())
	}
	return out, nil
}

// Usage returns what each project has stored.
func (s *Store) Usage(ctx context.Context) (list []memory.Usage, err error) {
	err = s.db.Read(ctx, "count project usage", func(c *dbfile.Conn) (err error) {
		list, err = dbfile.Collect(c, func(row dbfile.Row) (memory.Usage, error) {
			return memory.Usage{Project: row.Text(0), Agents: row.Int(1), Messages: row.Int(2), Bytes: row.Int(3)}, nil
		}, `SELECT project, sum(live), sum(messages), sum(bytes) FROM (
			SELECT project, 1 AS live, next_seq - 1 AS messages, written AS bytes FROM agent INDEXED BY agent_live WHERE status NOT IN (4, 6)
			UNION ALL SELECT project, 0, messages, bytes FROM project_use) GROUP BY project`)
		return err
	})
	return list, err
}

// loadCounts reads what Count starts from.
func (s *Store) loadCounts(w *dbfile.Conn) error {
	return w.Each(`SELECT status, count(*) FROM agent INDEXED BY agent_live WHERE status NOT IN (4, 6) GROUP BY status
		UNION ALL SELECT 4, sum(stopped) FROM project_use UNION ALL SELECT 6, sum(failed) FROM project_use`, nil, func(row dbfile.Row) error {
		if st := row.Int(0); st >= 0 && int(st) < memory.Statuses {
			s.counts[st].Store(row.Int(1))
		}
		return nil
	})
}

// count changes the number of agents of a status once the transaction is committed.
func (t *tx) count(status memory.Status, by int64) {
	if status < 0 || int(status) >= memory.Statuses {
		return
	}
	t.After(func() { t.s.counts[status].Add(by) })
}
