package postgres

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/postgres/pg"
)

// agentList is the statement of a list, without what is selected.
type agentList struct {
	from      string
	where     []string
	args      []any
	start, no string          // the columns that order the agents
	statuses  []memory.Status // of each part; nil if there is one
}

// and adds a condition. Each %d in it is the number of an argument.
func (l *agentList) and(cond string, args ...any) {
	numbers := make([]any, len(args))
	for i, arg := range args {
		l.args = append(l.args, arg)
		numbers[i] = len(l.args)
	}
	l.where = append(l.where, fmt.Sprintf(cond, numbers...))
}

// hasTag adds a condition that a row of agent_tag has one of a tag's values. A single value is
// compared with "=", since the index is in order only then.
func (l *agentList) hasTag(format string, project string, tag memory.TagValues) {
	is, value := "= $%d", any(pg.Stored(tag.Values[0]))
	if len(tag.Values) > 1 {
		is, value = "= ANY ($%d)", pg.StoredAll(tag.Values)
	}
	l.and(fmt.Sprintf(format, is), pg.Stored(project), pg.Stored(tag.Name), value)
}

// newAgentList returns the statement for a query. Agents with a tag are found by the tag. Further
// tags are looked up for each of them in order, until there are enough: the planner does not turn a
// scalar subquery into a join. With EXISTS it joined all agents of both tags, and in a database
// without statistics it did so in quadratic time.
func newAgentList(q *memory.AgentQuery) *agentList {
	l := &agentList{from: "agent a", start: "a.start_ms", no: "a.no", statuses: q.AnyStatus()}
	tags := q.Tags()
	if len(tags) > 0 {
		l.from, l.start, l.no = "agent_tag g JOIN agent a ON a.no = g.agent_no", "g.start_ms", "g.agent_no"
		l.hasTag("g.project = $%%d AND g.name = $%%d AND g.value %s", q.Project, tags[0])
		for _, tag := range tags[1:] {
			l.hasTag("(SELECT true FROM agent_tag x WHERE x.project = $%%d AND x.name = $%%d AND x.value %s AND x.start_ms = g.start_ms AND x.agent_no = g.agent_no LIMIT 1)", q.Project, tag)
		}
		if len(q.Statuses) > 0 {
			l.and("a.status = ANY ($%d)", pg.Column(l.statuses, func(st *memory.Status) int64 { return int64(*st) }))
		}
		l.statuses = nil
	} else {
		l.and("a.project = $%d", pg.Stored(q.Project))
	}
	if q.Channel != "" {
		l.and("a.channel = $%d", pg.Stored(q.Channel))
	}
	if q.Name != "" {
		l.and("a.name = $%d", pg.Stored(q.Name))
	}
	if q.FromMS != 0 {
		l.and(l.start+" >= $%d", q.FromMS)
	}
	if q.ToMS != 0 {
		l.and(l.start+" <= $%d", q.ToMS)
	}
	return l
}

// parts returns a statement for the first agents, with one part for each status: the index finds
// agents of one status in order, but not those of several.
func (l *agentList) parts(columns, more string) string {
	part := func(status string) string {
		return "(SELECT " + columns + " FROM " + l.from + " WHERE " + strings.Join(l.where, " AND ") + status + more + ")"
	}
	if l.statuses == nil {
		return part("")
	}
	parts := make([]string, len(l.statuses))
	for i, st := range l.statuses {
		parts[i] = part(fmt.Sprintf(" AND a.status = %d", st))
	}
	return strings.Join(parts, " UNION ALL ")
}

// Tallies implements memory.Store.
func (s *Store) Tallies(ctx context.Context, project string, fromMS, toMS int64, fn func(int64, []byte) error) error {
	var own error
	err := s.snapshot(ctx, "read tallies", func(tx pgx.Tx) error {
		var start int64
		var tally pgtype.DriverBytes
		return pg.Each(ctx, tx, []any{&start, &tally}, func() error {
			own = fn(start, tally)
			return own
		}, "SELECT a.start_ms, h.tally FROM agent a JOIN agent_head h ON h.agent_no = a.no WHERE a.project = $1 AND a.start_ms BETWEEN $2 AND $3", pg.Stored(project), fromMS, toMS)
	})
	return cmp.Or(own, err)
}

// List implements memory.Store. Its cost does not grow with the number of matching agents, since it
// counts at most memory.MaxCounted. The best plan depends on the values, so the statements are
// planned each time.
func (s *Store) List(ctx context.Context, q memory.AgentQuery) (page memory.AgentPage, err error) {
	l, most, limit := newAgentList(&q), memory.MaxCounted+1, max(q.Limit, 1)
	count := fmt.Sprintf("SELECT count(*) FROM (SELECT 1 FROM (%s) parts LIMIT %d) l", l.parts("1", fmt.Sprintf(" LIMIT %d", most)), most)
	counted := append([]any{pgx.QueryExecModeSimpleProtocol}, l.args...)
	than, order := " < ", " DESC"
	if q.OldestFirst {
		than, order = " > ", ""
	}
	if q.After != (memory.AgentPlace{}) {
		l.and("("+l.start+", "+l.no+")"+than+"($%d, $%d)", q.After.StartMS, q.After.No)
	}
	list := fmt.Sprintf("SELECT %s, h.rev, h.next_seq, h.last_turn, h.tally FROM (%s) a JOIN agent_head h ON h.agent_no = a.no ORDER BY a.start_ms%s, a.no%s LIMIT %d", agentColumns,
		l.parts("a.*", fmt.Sprintf(" ORDER BY %s%s, %s%s LIMIT %d", l.start, order, l.no, order, limit+1)), order, order, limit+1)
	listed := append([]any{pgx.QueryExecModeSimpleProtocol}, l.args...)
	err = s.db.Read(ctx, "list agents", func(ctx context.Context) error {
		page = memory.AgentPage{}
		return pgx.BeginTxFunc(ctx, s.db.Pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			if !q.NoTotal {
				n := 0
				if err := tx.QueryRow(ctx, count, counted...).Scan(&n); err != nil {
					return err
				}
				page.Count(n)
			}
			page.Heads, err = pg.Collect(ctx, tx, func(row pgx.CollectableRow) (h memory.Head, err error) {
				var no int64
				h.Agent = new(memory.Agent)
				err = s.scanAgent(row, h.Agent, &no, &h.Rev, &h.NextSeq, &h.LastTurn, tallyOf{&h})
				page.Places = append(page.Places, memory.AgentPlace{StartMS: h.Agent.StartMS, No: no})
				return h, err
			}, list, listed...)
			return err
		})
	})
	if err != nil {
		return memory.AgentPage{}, err
	}
	if len(page.Heads) > limit {
		page.Heads, page.Places = page.Heads[:limit], page.Places[:limit]
		page.Next = page.Places[limit-1]
	}
	if len(page.Heads) == 0 {
		page.Heads = nil
	}
	return page, nil
}
