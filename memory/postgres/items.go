package postgres

import (
	"context"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/codec"
)

var _ memory.ItemStore = (*Store)(nil)

// itemChanges is what a batch does to the rows by which messages are found as items. The last
// change of a message counts.
type itemChanges struct {
	at   map[place]int
	list []itemChange
}

type itemChange struct {
	place
	row  memory.ItemRow
	gone bool
}

// take adds a change's items. Most messages are not items and cost nothing here.
func (c *itemChanges) take(k key, no int64, change memory.Change) {
	for _, list := range [][]memory.Message{change.Append, change.Replace} {
		for i := range list {
			m := &list[i]
			row, ok := m.ItemRow(k.project, k.id)
			if !ok && m.State != memory.Removed {
				continue
			}
			p := place{no, m.Seq}
			if c.at == nil {
				c.at = map[place]int{}
			}
			at, there := c.at[p]
			if !there {
				at = len(c.list)
				c.at[p], c.list = at, append(c.list, itemChange{})
			}
			c.list[at] = itemChange{p, row, !ok}
		}
	}
}

// write adds the parts that write the rows of agents.
func (c *itemChanges) write(st *statement) {
	var projects, ids, users, sessions, tasks, agents []string
	var nos, seqs, goneNos, goneSeqs []int64
	for i := range c.list {
		ch := &c.list[i]
		if ch.gone {
			goneNos, goneSeqs = append(goneNos, ch.no), append(goneSeqs, ch.seq)
			continue
		}
		nos, seqs = append(nos, ch.no), append(seqs, ch.seq)
		projects, ids, agents = append(projects, stored(ch.row.Project)), append(ids, stored(ch.row.ID)), append(agents, stored(ch.row.AgentID))
		users, sessions, tasks = append(users, stored(ch.row.UserID)), append(sessions, stored(ch.row.SessionID)), append(tasks, stored(ch.row.TaskID))
	}
	if len(nos) > 0 {
		st.with("items", `INSERT INTO item (project, id, agent_no, seq, user_id, session_id, task_id, agent_id)
			SELECT u.project, u.id, u.agent_no, u.seq, u.user_id, u.session_id, u.task_id, u.agent_id
			FROM unnest(?::text[], ?::text[], ?::bigint[], ?::bigint[], ?::text[], ?::text[], ?::text[], ?::text[]) WITH ORDINALITY
				u (project, id, agent_no, seq, user_id, session_id, task_id, agent_id, n) WHERE u.`+found+` ORDER BY u.n ON CONFLICT (agent_no, seq) DO NOTHING`,
			projects, ids, nos, seqs, users, sessions, tasks, agents)
	}
	if len(goneNos) > 0 {
		st.with("gone", `DELETE FROM item i USING unnest(?::bigint[], ?::bigint[]) u (agent_no, seq)
			WHERE i.agent_no = u.agent_no AND i.seq = u.seq AND u.`+found, goneNos, goneSeqs)
	}
}

const itemColumns = "i.no, i.id, i.user_id, i.session_id, i.task_id, i.agent_id, a.project, a.id"

// scanItem reads itemColumns and messageColumns.
func scanItem(project string, row pgx.CollectableRow) (it memory.StoredItem, err error) {
	r, m := &it.Row, &it.Message
	var id *string
	var text string
	err = row.Scan(&it.No, &r.ID, &r.UserID, &r.SessionID, &r.TaskID, &r.AgentID, &it.Project, &it.AgentID, &m.Seq, &m.Rev, &m.TurnID, &id, &text)
	if err != nil {
		return it, err
	}
	for _, s := range []*string{&r.ID, &r.UserID, &r.SessionID, &r.TaskID, &r.AgentID, &it.Project, &it.AgentID} {
		*s = shown(*s)
	}
	if id != nil {
		m.ID = shown(*id)
	}
	r.Project = project
	return it, codec.DecodeMessage(text, m)
}

// Items returns a project's items, newest first.
func (s *Store) Items(ctx context.Context, project string, q memory.ItemQuery) (out []memory.StoredItem, next int64, err error) {
	// The most selective ID is in the index condition; the others are checked row by row.
	lead, value := "", ""
	for _, id := range [][2]string{{"task_id", q.TaskID}, {"session_id", q.SessionID}, {"user_id", q.UserID}, {"agent_id", q.AgentID}} {
		if id[1] != "" {
			lead, value = " AND "+id[0]+" = $3 AND "+id[0]+" <> ''", id[1]
			break
		}
	}
	if lead == "" {
		lead = " AND $3 = ''"
	}
	before, limit := int64(math.MaxInt64), max(q.Limit, 1)
	if q.Before > 0 {
		before = q.Before
	}
	err = s.read(ctx, "read items", func(ctx context.Context) error {
		out, next = nil, 0
		rows, err := s.pool.Query(ctx, "SELECT no, user_id, session_id, task_id, agent_id FROM item WHERE project = $1 AND no < $2"+lead+" ORDER BY no DESC LIMIT $4",
			stored(project), before, stored(value), limit)
		if err != nil {
			return err
		}
		var nos []int64
		n, no, ids := 0, int64(0), [4]string{}
		_, err = pgx.ForEachRow(rows, []any{&no, &ids[0], &ids[1], &ids[2], &ids[3]}, func() error {
			fits := true
			for i, want := range [...]string{q.UserID, q.SessionID, q.TaskID, q.AgentID} {
				fits = fits && (want == "" || want == shown(ids[i]))
			}
			if fits {
				nos = append(nos, no)
			}
			n++
			return nil
		})
		if err != nil {
			return err
		}
		if n == limit {
			next = no
		}
		if len(nos) == 0 {
			return nil
		}
		rows, err = s.pool.Query(ctx, "SELECT "+itemColumns+", "+messageColumns+` FROM item i JOIN agent a ON a.no = i.agent_no
			JOIN message m ON m.agent_no = i.agent_no AND m.seq = i.seq WHERE i.no = ANY($1) ORDER BY i.no DESC`, nos)
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (memory.StoredItem, error) { return scanItem(project, row) })
		return err
	})
	return out, next, err
}

// Item returns the first item with an ID.
func (s *Store) Item(ctx context.Context, project, id string) (it memory.StoredItem, err error) {
	err = s.read(ctx, "read item", func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, "SELECT "+itemColumns+", "+messageColumns+` FROM item i JOIN agent a ON a.no = i.agent_no
			JOIN message m ON m.agent_no = i.agent_no AND m.seq = i.seq WHERE i.project = $1 AND i.id = $2 ORDER BY i.no LIMIT 1`, stored(project), stored(id))
		if err != nil {
			return err
		}
		it, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (memory.StoredItem, error) { return scanItem(project, row) })
		if noRows(err) {
			return memory.ErrNoItem(id)
		}
		return err
	})
	return it, err
}
