package sqlite

import (
	"context"
	"math"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
)

var _ memories.Store = (*Store)(nil)

// writeItem writes the row by which a message is found as an item. Most messages are not items.
func (t *tx) writeItem(agent memory.Ref, no int64, m *memory.Message, fresh bool) error {
	row, ok := memories.RowOf(m, agent.Project, agent.ID)
	switch {
	case ok:
		id, agentID := row.Stored(agent.Project, agent.ID, m.Seq)
		_, err := t.Exec("INSERT INTO item (project, id, agent_no, seq, user_id, session_id, task_id, agent_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (agent_no, seq) DO NOTHING",
			row.Project, id, no, m.Seq, row.UserID, row.SessionID, row.TaskID, agentID)
		return err
	case m.State == memory.Removed && !fresh:
		_, err := t.Exec("DELETE FROM item WHERE agent_no = ? AND seq = ?", no, m.Seq)
		return err
	}
	return nil
}

// selectItem reads items with their messages. It leaves out those of agents that are being erased.
const selectItem = `SELECT i.no, i.id, i.user_id, i.session_id, i.task_id, i.agent_id, a.project, a.id, i.agent_no, i.seq, m.rev, m.turn, m.client_id, m.body
	FROM item i JOIN agent a ON a.no = i.agent_no LEFT JOIN message m ON m.agent_no = i.agent_no AND m.seq = i.seq `

// itemReader returns what reads a row of selectItem.
func (s *Store) itemReader(project string) func(row dbfile.Row) (memories.Item, error) {
	return func(row dbfile.Row) (memories.Item, error) {
		it := memories.Item{
			No: row.Int(0), Project: row.Text(6), AgentID: row.Text(7),
			Row: memories.Row{
				Project: project, ID: row.Text(1), Scope: memory.Scope{UserID: row.Text(2), SessionID: row.Text(3), TaskID: row.Text(4), AgentID: row.Text(5)},
			},
		}
		if it.Cold = row.Null(13); it.Cold {
			it.Message.Seq = row.Int(9)
			it.Row.Restore(it.Project, it.AgentID, it.Message.Seq)
			return it, nil
		}
		err := s.readMessage(row.Int(8), row[9:], &it.Message)
		it.Row.Restore(it.Project, it.AgentID, it.Message.Seq)
		return it, err
	}
}

// Items returns items of a project, newest first.
func (s *Store) Items(ctx context.Context, project string, q memories.Query) ([]memories.Item, int64, error) {
	// The most selective ID comes first, and the others are checked row by row. SQLite has no
	// statistics to choose by.
	index, where, byAgent := "item_project", "i.project = ?", false
	args := []any{project}
	for _, id := range []struct{ index, column, value string }{
		{"item_task", "task_id", q.TaskID}, {"item_session", "session_id", q.SessionID}, {"item_user", "user_id", q.UserID}, {"item_agent", "agent_id", memories.StoredAgent(q.AgentID)},
	} {
		if id.value != "" {
			index, where, args = id.index, where+" AND i."+id.column+" = ? AND i."+id.column+" <> ''", append(args, id.value)
			if byAgent = id.index == "item_agent"; byAgent {
				where += " AND i.agent_id <> '='"
			}
			break
		}
	}
	before := int64(math.MaxInt64)
	if q.Before > 0 {
		before = q.Before
	}
	columns := "SELECT i.no, i.user_id, i.session_id, i.task_id, i.agent_id, "
	sql := columns + "CASE ? WHEN '' THEN '' ELSE (SELECT a.id FROM agent a WHERE a.no = i.agent_no) END FROM item i INDEXED BY " + index + " WHERE " + where + " AND i.no < ? ORDER BY i.no DESC LIMIT ?+0"
	args = append(append([]any{q.AgentID}, args...), before, int64(max(q.Limit, 1)))
	if byAgent { // and what is in the agent's own ledger
		sql = "SELECT * FROM (SELECT * FROM (" + sql + ") UNION ALL SELECT * FROM (" + columns + `a.id FROM agent a JOIN item i INDEXED BY item_message ON i.agent_no = a.no
			WHERE a.project = ? AND a.id = ? AND i.project = a.project AND i.agent_id <> a.id AND i.no < ? ORDER BY i.no DESC LIMIT ?+0)) ORDER BY 1 DESC LIMIT ?+0`
		args = append(args, project, q.AgentID, before, int64(max(q.Limit, 1)), int64(max(q.Limit, 1)))
	}
	type found struct {
		no   int64
		fits bool
	}
	var rows []found
	var out []memories.Item
	limit := max(q.Limit, 1)
	err := s.db.Read(ctx, "read items", func(c *dbfile.Conn) (err error) {
		rows, err = dbfile.Collect(c, func(row dbfile.Row) (found, error) {
			fits := true
			for i, want := range [...]string{q.UserID, q.SessionID, q.TaskID, q.AgentID} {
				id := row.Text(i + 1)
				if i == 3 {
					id = memories.AgentOf(id, row.Text(5))
				}
				fits = fits && (want == "" || want == id)
			}
			return found{row.Int(0), fits}, nil
		}, sql, args...)
		out = make([]memories.Item, 0, len(rows))
		for _, r := range rows {
			if !r.fits {
				continue
			}
			list, err := dbfile.Collect(c, s.itemReader(project), selectItem+"WHERE i.no = ?", r.no)
			if err != nil {
				return err
			}
			out = append(out, list...)
		}
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	next := int64(0)
	if len(rows) == limit {
		next = rows[limit-1].no
	}
	return out, next, nil
}

// Item returns the first item with that ID.
func (s *Store) Item(ctx context.Context, project, id string) (it memories.Item, err error) {
	err = s.db.Read(ctx, "read an item", func(c *dbfile.Conn) error {
		list, err := dbfile.Collect(c, s.itemReader(project), selectItem+"WHERE i.project = ? AND i.id = ? AND i.id <> '' ORDER BY i.no LIMIT 1", project, id)
		if prefix, seq, ok := memories.PlaceOf(id); ok && err == nil && len(list) == 0 {
			list, err = dbfile.Collect(c, s.itemReader(project), selectItem+"WHERE i.id = '' AND i.seq = ?3 AND a.project IN (?1, ?2) AND a.id >= ?4 AND a.id < ?4 || 'g' ORDER BY i.no LIMIT 1",
				project, memories.OwnProject(project), seq, prefix)
		}
		switch {
		case err != nil:
			return err
		case len(list) == 0:
			return memories.ErrNotFound(id)
		}
		it = list[0]
		return nil
	})
	return it, err
}

// Users returns the users of a project's items. It jumps through the index from user to user.
func (s *Store) Users(ctx context.Context, project, after string, limit int) (out []string, err error) {
	err = s.db.Read(ctx, "list users", func(c *dbfile.Conn) (err error) {
		out, err = c.Texts(`WITH RECURSIVE of (id) AS (
			SELECT min(user_id) FROM item INDEXED BY item_caller WHERE project = ?1 AND user_id > ?2 AND user_id <> ''
			UNION ALL SELECT (SELECT min(i.user_id) FROM item i INDEXED BY item_caller WHERE i.project = ?1 AND i.user_id > of.id AND i.user_id <> '')
				FROM of WHERE of.id IS NOT NULL
			) SELECT id FROM of WHERE id IS NOT NULL LIMIT ?3+0`, project, after, int64(limit))
		return err
	})
	return out, err
}
