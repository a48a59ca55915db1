package postgres

import (
	"context"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/store/postgres/pg"
)

var _ memories.Store = (*Store)(nil)

// itemChanges is what a batch does to the rows by which messages are found as items. The last
// change of a message counts.
type itemChanges struct {
	at   map[place]int
	list []itemChange
}

type itemChange struct {
	place
	row       memories.Row
	gone      bool
	id, agent string // columns; see memories.Row.Stored
}

// take adds a change's items. Most messages are not items and cost nothing here.
func (c *itemChanges) take(k memory.Ref, no int64, change memory.Change) {
	for _, list := range [][]memory.Message{change.Append, change.Replace} {
		for i := range list {
			m := &list[i]
			row, ok := memories.RowOf(m, k.Project, k.ID)
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
			id, agent := row.Stored(k.Project, k.ID, m.Seq)
			c.list[at] = itemChange{p, row, !ok, id, agent}
		}
	}
}

// write adds the parts that write the rows of agents.
func (c *itemChanges) write(st *pg.Parts) {
	var set, gone []itemChange
	for _, ch := range c.list {
		if ch.gone {
			gone = append(gone, ch)
		} else {
			set = append(set, ch)
		}
	}
	no, seq := func(ch *itemChange) int64 { return ch.no }, func(ch *itemChange) int64 { return ch.seq }
	if len(set) > 0 {
		text := func(value func(*memories.Row) string) []string {
			return pg.Column(set, func(ch *itemChange) string { return pg.Stored(value(&ch.row)) })
		}
		st.With("items", `INSERT INTO item (project, id, agent_no, seq, user_id, session_id, task_id, agent_id)
			SELECT u.project, u.id, u.agent_no, u.seq, u.user_id, u.session_id, u.task_id, u.agent_id
			FROM unnest(?::text[], ?::text[], ?::bigint[], ?::bigint[], ?::text[], ?::text[], ?::text[], ?::text[]) WITH ORDINALITY
				u (project, id, agent_no, seq, user_id, session_id, task_id, agent_id, n) WHERE u.`+found+` ORDER BY u.n ON CONFLICT (agent_no, seq) DO NOTHING`,
			text(func(r *memories.Row) string { return r.Project }), pg.Column(set, func(ch *itemChange) string { return pg.Stored(ch.id) }), pg.Column(set, no), pg.Column(set, seq),
			text(func(r *memories.Row) string { return r.UserID }), text(func(r *memories.Row) string { return r.SessionID }),
			text(func(r *memories.Row) string { return r.TaskID }), pg.Column(set, func(ch *itemChange) string { return pg.Stored(ch.agent) }))
	}
	if len(gone) > 0 {
		st.With("gone", `DELETE FROM item i USING unnest(?::bigint[], ?::bigint[]) u (agent_no, seq)
			WHERE i.agent_no = u.agent_no AND i.seq = u.seq AND u.`+found, pg.Column(gone, no), pg.Column(gone, seq))
	}
}

// itemsWhere reads the items of a project that a condition selects.
func (s *Store) itemsWhere(ctx context.Context, q pg.Querier, project, where string, args ...any) ([]memories.Item, error) {
	return pg.Collect(ctx, q, func(row pgx.CollectableRow) (it memories.Item, err error) {
		r := &it.Row
		it.Message, err = s.scanMessage(row, &it.No, &r.ID, &r.UserID, &r.SessionID, &r.TaskID, &r.AgentID, &it.Project, &it.AgentID, &it.Cold)
		if it.Cold {
			it.Message, err = memory.Message{Seq: it.Message.Seq}, nil
		}
		pg.Show(&r.ID, &r.UserID, &r.SessionID, &r.TaskID, &r.AgentID, &it.Project, &it.AgentID)
		r.Project = project
		r.Restore(it.Project, it.AgentID, it.Message.Seq)
		return it, err
	}, `SELECT i.no, i.id, i.user_id, i.session_id, i.task_id, i.agent_id, a.project, a.id, m.seq IS NULL,
			m.agent_no, i.seq, coalesce(m.rev, 0), coalesce(m.turn, 0), m.client_id, `+packedBody+` FROM item i JOIN agent a ON a.no = i.agent_no
		LEFT JOIN message m ON m.agent_no = i.agent_no AND m.seq = i.seq WHERE `+where, args...)
}

// Items returns a project's items, newest first.
func (s *Store) Items(ctx context.Context, project string, q memories.Query) (out []memories.Item, next int64, err error) {
	// The most selective ID is in the index condition; the others are checked row by row.
	lead, value, byAgent := "", "", false
	for _, id := range [][2]string{{"task_id", q.TaskID}, {"session_id", q.SessionID}, {"user_id", q.UserID}, {"agent_id", memories.StoredAgent(q.AgentID)}} {
		if id[1] != "" {
			lead, value, byAgent = " AND i."+id[0]+" = $3 AND i."+id[0]+" <> ''", id[1], id[0] == "agent_id"
			if byAgent {
				lead += " AND i.agent_id <> '='"
			}
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
	sql := "SELECT i.no, i.user_id, i.session_id, i.task_id, i.agent_id, coalesce((SELECT a.id FROM agent a WHERE a.no = i.agent_no AND $5 <> ''), '') FROM item i WHERE i.project = $1 AND i.no < $2" +
		lead + " ORDER BY i.no DESC LIMIT $4"
	if byAgent {
		sql = "SELECT * FROM ((" + sql + `) UNION ALL (SELECT i.no, i.user_id, i.session_id, i.task_id, i.agent_id, a.id FROM agent a JOIN item i ON i.agent_no = a.no
			WHERE a.project = $1 AND a.id = $5 AND i.project = $1 AND i.agent_id <> $5 AND i.no < $2 ORDER BY i.no DESC LIMIT $4)) i ORDER BY no DESC LIMIT $4`
	}
	err = s.db.Read(ctx, "read items", func(ctx context.Context) error {
		out, next = nil, 0
		var nos []int64
		n, no, ids, agent := 0, int64(0), [4]string{}, ""
		err = pg.Each(ctx, s.db.Pool, []any{&no, &ids[0], &ids[1], &ids[2], &ids[3], &agent}, func() error {
			fits := true
			for i, want := range [...]string{q.UserID, q.SessionID, q.TaskID, q.AgentID} {
				id := pg.Shown(ids[i])
				if i == 3 {
					id = memories.AgentOf(id, pg.Shown(agent))
				}
				fits = fits && (want == "" || want == id)
			}
			if fits {
				nos = append(nos, no)
			}
			n++
			return nil
		}, sql, pg.Stored(project), before, pg.Stored(value), limit, pg.Stored(q.AgentID))
		if err != nil {
			return err
		}
		if n == limit {
			next = no
		}
		if len(nos) == 0 {
			return nil
		}
		out, err = s.itemsWhere(ctx, s.db.Pool, project, "i.project = $1 AND i.no = ANY($2) ORDER BY i.no DESC", pg.Stored(project), nos)
		return err
	})
	return out, next, err
}

// Item returns the first item with an ID.
func (s *Store) Item(ctx context.Context, project, id string) (it memories.Item, err error) {
	err = s.db.Read(ctx, "read item", func(ctx context.Context) error {
		list, err := s.itemsWhere(ctx, s.db.Pool, project, "i.project = $1 AND i.id = $2 AND i.id <> '' ORDER BY i.no LIMIT 1", pg.Stored(project), pg.Stored(id))
		if prefix, seq, ok := memories.PlaceOf(id); ok && err == nil && len(list) == 0 {
			list, err = s.itemsWhere(ctx, s.db.Pool, project, "i.id = '' AND i.seq = $3 AND a.project IN ($1, $2) AND a.id >= $4 AND a.id < $4 || 'g' ORDER BY i.no LIMIT 1",
				pg.Stored(project), pg.Stored(memories.OwnProject(project)), seq, prefix)
		}
		if err == nil && len(list) == 0 {
			err = memories.ErrNotFound(id)
		}
		if err == nil {
			it = list[0]
		}
		return err
	})
	return it, err
}

// AgentsOf returns the agents with messages of a user. It jumps through the index from agent to
// agent, so the number of messages does not matter.
func (s *Store) AgentsOf(ctx context.Context, project, user string) ([]memories.AgentVersion, error) {
	return pg.ReadAll(ctx, s.db, "read a user's agents", func(row pgx.CollectableRow) (a memories.AgentVersion, err error) {
		err = row.Scan(&a.ID, &a.No, &a.Rev, &a.Ver)
		pg.Show(&a.ID)
		return a, err
	}, `WITH RECURSIVE of (no) AS (
		SELECT min(agent_no) FROM item WHERE project = $1 AND user_id = $2 AND user_id <> ''
		UNION ALL SELECT (SELECT min(i.agent_no) FROM item i WHERE i.project = $1 AND i.user_id = $2 AND i.user_id <> '' AND i.agent_no > of.no)
			FROM of WHERE of.no IS NOT NULL
		) SELECT a.id, a.no, h.rev, h.ver FROM of JOIN agent a ON a.no = of.no JOIN agent_head h ON h.agent_no = a.no WHERE a.project = $1`, pg.Stored(project), pg.Stored(user))
}

// Users returns the users of a project's items. It jumps through the index from user to user.
func (s *Store) Users(ctx context.Context, project, after string, limit int) ([]string, error) {
	return pg.ReadAll(ctx, s.db, "list users", func(row pgx.CollectableRow) (id string, err error) {
		err = row.Scan(&id)
		return pg.Shown(id), err
	}, `WITH RECURSIVE of (id) AS (
		SELECT min(user_id) FROM item WHERE project = $1 AND user_id > $2 AND user_id <> ''
		UNION ALL SELECT (SELECT min(i.user_id) FROM item i WHERE i.project = $1 AND i.user_id > of.id AND i.user_id <> '')
			FROM of WHERE of.id IS NOT NULL
		) SELECT id FROM of WHERE id IS NOT NULL LIMIT $3`, pg.Stored(project), pg.Stored(after), limit)
}
