package sqlite

import (
	"context"
	"database/sql/driver"

	"github.com/heardlog/heardlog/memory"
)

var _ memory.ItemStore = (*Store)(nil)

// writeItem writes the row by which a message is found as an item. Most messages are not items.
func (t *tx) writeItem(agent memory.Ref, no int64, m *memory.Message, fresh bool) error {
	row, ok := m.ItemRow(agent.Project, agent.ID)
	switch {
	case ok:
		_, _, err := t.exec("insert item", `INSERT INTO item (project, id, agent_no, seq, user_id, session_id, task_id, agent_id)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (agent_no, seq) DO NOTHING`, row.Project, row.ID, no, m.Seq, row.UserID, row.SessionID, row.TaskID, row.AgentID)
		return err
	case m.State == memory.Removed && !fresh:
		_, _, err := t.exec("delete item", "DELETE FROM item WHERE agent_no = ? AND seq = ?", no, m.Seq)
		return err
	}
	return nil
}

// selectItem reads items with their messages. It leaves out those of agents that are being erased.
const selectItem = `SELECT i.no, i.id, i.user_id, i.session_id, i.task_id, i.agent_id, a.project, a.id, m.seq, m.rev, m.turn, m.client_id, m.body
	FROM item i JOIN agent a ON a.no = i.agent_no JOIN message m ON m.agent_no = i.agent_no AND m.seq = i.seq `

func readItem(project string, row []driver.Value, it *memory.StoredItem) error {
	*it = memory.StoredItem{
		No: integer(row[0]), Project: text(row[6]), AgentID: text(row[7]),
		Row: memory.ItemRow{
			Project: project, ID: text(row[1]), Scope: memory.Scope{UserID: text(row[2]), SessionID: text(row[3]), TaskID: text(row[4])}, AgentID: text(row[5]),
		},
	}
	return readMessage(row[8:], &it.Message)
}

// Items returns items of a project, newest first.
func (s *Store) Items(ctx context.Context, project string, q memory.ItemQuery) ([]memory.StoredItem, int64, error) {
	if ctx.Err() != nil {
		return nil, 0, ended(ctx)
	}
	// The most selective ID comes first, and the others are checked row by row. SQLite has no
	// statistics to choose by.
	index, where := "item_project", "i.project = ?"
	args := []driver.Value{project}
	for _, id := range []struct{ index, column, value string }{
		{"item_task", "task_id", q.TaskID}, {"item_session", "session_id", q.SessionID}, {"item_user", "user_id", q.UserID}, {"item_agent", "agent_id", q.AgentID},
	} {
		if id.value != "" {
			index, where, args = id.index, where+" AND i."+id.column+" = ? AND i."+id.column+" <> ''", append(args, id.value)
			break
		}
	}
	if q.Before > 0 {
		where, args = where+" AND i.no < ?", append(args, q.Before)
	}
	type found struct {
		no   int64
		fits bool
	}
	var rows []found
	var out []memory.StoredItem
	limit := max(q.Limit, 1)
	err := s.readers.do(ctx, func(c *conn) error {
		err := c.each("SELECT i.no, i.user_id, i.session_id, i.task_id, i.agent_id FROM item i INDEXED BY "+index+" WHERE "+where+" ORDER BY i.no DESC LIMIT ?+0",
			append(args, int64(limit)), func(row []driver.Value) error {
				fits := true
				for i, want := range [...]string{q.UserID, q.SessionID, q.TaskID, q.AgentID} {
					fits = fits && (want == "" || want == text(row[i+1]))
				}
				rows = append(rows, found{integer(row[0]), fits})
				return nil
			})
		if err != nil {
			return err
		}
		out = make([]memory.StoredItem, 0, len(rows))
		for _, r := range rows {
			if !r.fits {
				continue
			}
			err := c.each(selectItem+"WHERE i.no = ?", []driver.Value{r.no}, func(row []driver.Value) error {
				out = append(out, memory.StoredItem{})
				return readItem(project, row, &out[len(out)-1])
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, 0, classify(err, "read items")
	}
	next := int64(0)
	if len(rows) == limit {
		next = rows[limit-1].no
	}
	return out, next, nil
}

// Item returns the first item with that ID.
func (s *Store) Item(ctx context.Context, project, id string) (it memory.StoredItem, err error) {
	if ctx.Err() != nil {
		return it, ended(ctx)
	}
	found := false
	err = s.readers.with(ctx, func(c *conn) error {
		return c.each(selectItem+"WHERE i.project = ? AND i.id = ? ORDER BY i.no LIMIT 1", []driver.Value{project, id}, func(row []driver.Value) error {
			found = true
			return readItem(project, row, &it)
		})
	})
	if err == nil && !found {
		err = memory.ErrNoItem(id)
	}
	return it, classify(err, "read an item")
}
