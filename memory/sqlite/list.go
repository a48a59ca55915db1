package sqlite

import (
	"context"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/sqlite/dbfile"
)

// agentFilter returns the WHERE of a list of one status. Its text depends on which filters are set,
// not on their values.
func agentFilter(q memory.AgentQuery, st memory.Status) (where string, args []any) {
	where, args = "WHERE a.project = ? AND a.status = ?", []any{q.Project, int64(st)}
	add := func(cond string, arg any) { where += " AND " + cond; args = append(args, arg) }
	if q.Channel != "" {
		add("a.channel = ?", q.Channel)
	}
	if q.Name != "" {
		add("a.name = ?", q.Name)
	}
	if q.FromMS != 0 {
		add("a.start_ms >= ?", q.FromMS)
	}
	if q.ToMS != 0 {
		add("a.start_ms <= ?", q.ToMS)
	}
	return where, args
}

// agentIndex returns the index for a list of one status, and the condition that SQLite wants to see
// before it uses a partial index. Without statistics SQLite would choose any index.
func agentIndex(q memory.AgentQuery, st memory.Status, otherwise string) (index, also string) {
	switch {
	case q.Name != "" && st.Ended():
		return "agent_ended_name", " AND a.status IN (4, 6) AND a.name <> ''"
	case q.Name != "":
		return "agent_live_name", " AND a.status NOT IN (4, 6) AND a.name <> ''"
	case q.Channel != "":
		return "agent_channel", ""
	}
	return otherwise, ""
}

// List lists a project's agents, newest ID first. It reads each status by itself, since an index
// has the agents of one status in order, and counts up to memory.MaxCounted.
func (s *Store) List(ctx context.Context, q memory.AgentQuery) (page memory.AgentPage, err error) {
	statuses := slices.Clone(q.Statuses)
	if len(statuses) == 0 {
		for st := range memory.Statuses {
			statuses = append(statuses, memory.Status(st))
		}
	}
	slices.Sort(statuses)
	statuses = slices.Compact(statuses)
	err = s.db.Read(ctx, "list agents", func(c *dbfile.Conn) error {
		page = memory.AgentPage{}
		total := 0
		var found []listed
		for _, st := range statuses {
			n, err := countAgents(c, q, st)
			if err != nil {
				return err
			}
			if total += n; n == 0 {
				continue
			}
			if found, err = listAgents(c, q, st, n, found); err != nil {
				return err
			}
		}
		page.Count(total)
		slices.SortFunc(found, func(a, b listed) int { return strings.Compare(b.id, a.id) })
		if limit := max(q.Limit, 1); len(found) > limit {
			page.Next, found = found[limit].id, found[:limit]
		}
		for _, f := range found {
			h, err := headOnly(c, &s.sealer, f.no)
			if err != nil {
				return err
			}
			page.Agents = append(page.Agents, h.Agent)
		}
		return nil
	})
	return page, err
}

// countAgents counts the agents of a status that match, up to one more than memory.MaxCounted.
func countAgents(c *dbfile.Conn, q memory.AgentQuery, st memory.Status) (int, error) {
	where, args := agentFilter(q, st)
	index, also := agentIndex(q, st, "agent_state_start")
	n, err := c.Number("SELECT count(*) FROM (SELECT 1 FROM agent a INDEXED BY "+index+" "+where+also+" LIMIT ?+0)", append(args, int64(memory.MaxCounted)+1)...)
	return int(n), err
}

// listed is an agent of a list that has not been read yet.
type listed struct {
	no int64
	id string
}

// listAgents appends the newest agents of a status from the cursor on, up to one more than a page
// holds. n agents match. If there are many, going through IDs from the newest finds a page soon. If
// there are few in a range of start times, they are found by start and sorted.
func listAgents(c *dbfile.Conn, q memory.AgentQuery, st memory.Status, n int, found []listed) ([]listed, error) {
	where, args := agentFilter(q, st)
	otherwise := "agent_state_id"
	if (q.FromMS != 0 || q.ToMS != 0) && n <= memory.MaxCounted {
		otherwise = "agent_state_start"
	}
	index, also := agentIndex(q, st, otherwise)
	if q.Cursor != "" {
		where += " AND a.id <= ?"
		args = append(args, q.Cursor)
	}
	err := c.Each("SELECT a.no, a.id FROM agent a INDEXED BY "+index+" "+where+also+" ORDER BY a.id DESC LIMIT ?+0", append(args, int64(max(q.Limit, 1))+1), func(row dbfile.Row) error {
		found = append(found, listed{row.Int(0), row.Text(1)})
		return nil
	})
	return found, err
}
