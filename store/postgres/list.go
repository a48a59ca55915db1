package postgres

import (
	"cmp"
	"context"
	"errors"
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

// after adds the condition that an agent comes after a place, if there is one, and returns the
// direction of the order.
func (l *agentList) after(place memory.AgentPlace, oldestFirst bool) (order string) {
	than, order := " < ", " DESC"
	if oldestFirst {
		than, order = " > ", ""
	}
	if place != (memory.AgentPlace{}) {
		l.and("("+l.start+", "+l.no+")"+than+"($%d, $%d)", place.StartMS, place.No)
	}
	return order
}

// scanListed reads agentColumns and listColumns.
func (s *Store) scanListed(row pgx.CollectableRow) (no int64, h memory.Head, err error) {
	h.Agent = new(memory.Agent)
	err = s.scanAgent(row, h.Agent, &no, &h.Rev, &h.NextSeq, &h.LastTurn, tallyOf{&h})
	return no, h, err
}

const listColumns = "h.rev, h.next_seq, h.last_turn, h.tally"

// pick lists agents by what their tallies say.
func (s *Store) pick(ctx context.Context, q *memory.AgentQuery) (page memory.AgentPage, err error) {
	l, most := newAgentList(q), memory.MaxPicked+1
	order := l.after(q.ReadsAfter(), q.ReadsOldest())
	read := fmt.Sprintf("SELECT a.start_ms, a.no, h.tally FROM (%s) a JOIN agent_head h ON h.agent_no = a.no ORDER BY a.start_ms%s, a.no%s LIMIT %d",
		l.parts(l.start+" AS start_ms, "+l.no+" AS no", fmt.Sprintf(" ORDER BY %s%s, %s%s LIMIT %d", l.start, order, l.no, order, most)), order, order, most)
	args := append([]any{pgx.QueryExecModeSimpleProtocol}, l.args...)
	err = s.readList(ctx, func(ctx context.Context, tx pgx.Tx) error {
		page = memory.AgentPage{}
		picker := memory.Picker{Query: q}
		picker.Part()
		var at memory.AgentPlace
		var tally pgtype.DriverBytes
		err := pg.Each(ctx, tx, []any{&at.StartMS, &at.No, &tally}, func() error {
			more, err := picker.Add(at, tally)
			if err == nil && !more {
				err = errPicked
			}
			return err
		}, read, args...)
		if err != nil && !errors.Is(err, errPicked) {
			return err
		}
		picker.Page(&page)
		page.Heads = make([]memory.Head, len(page.Places))
		nos, index := make([]int64, len(page.Places)), make(map[int64]int, len(page.Places))
		for i := range page.Places {
			nos[i], index[page.Places[i].No] = page.Places[i].No, i
		}
		_, err = pg.Collect(ctx, tx, func(row pgx.CollectableRow) (struct{}, error) {
			no, h, err := s.scanListed(row)
			page.Heads[index[no]] = h
			return struct{}{}, err
		}, "SELECT "+agentColumns+", "+listColumns+" FROM agent a JOIN agent_head h ON h.agent_no = a.no WHERE a.no = ANY ($1)", nos)
		return err
	})
	if err != nil {
		return memory.AgentPage{}, err
	}
	return page, nil
}

// readList runs a function in a transaction that sees one moment.
func (s *Store) readList(ctx context.Context, fn func(context.Context, pgx.Tx) error) error {
	return s.db.Read(ctx, "list agents", func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, s.db.Pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error { return fn(ctx, tx) })
	})
}

// errPicked ends the reading of agents for a list.
var errPicked = errors.New("enough was read")

// List implements memory.Store. Its cost does not grow with the number of matching agents, since it
// counts at most memory.MaxCounted. The best plan depends on the values, so the statements are
// planned each time.
func (s *Store) List(ctx context.Context, q memory.AgentQuery) (page memory.AgentPage, err error) {
	if q.Picks() {
		return s.pick(ctx, &q)
	}
	l, most, limit := newAgentList(&q), memory.MaxCounted+1, max(q.Limit, 1)
	count := fmt.Sprintf("SELECT count(*) FROM (SELECT 1 FROM (%s) parts LIMIT %d) l", l.parts("1", fmt.Sprintf(" LIMIT %d", most)), most)
	counted := append([]any{pgx.QueryExecModeSimpleProtocol}, l.args...)
	order := l.after(q.After, q.OldestFirst)
	list := fmt.Sprintf("SELECT %s, "+listColumns+" FROM (%s) a JOIN agent_head h ON h.agent_no = a.no ORDER BY a.start_ms%s, a.no%s LIMIT %d", agentColumns,
		l.parts("a.*", fmt.Sprintf(" ORDER BY %s%s, %s%s LIMIT %d", l.start, order, l.no, order, limit+1)), order, order, limit+1)
	listed := append([]any{pgx.QueryExecModeSimpleProtocol}, l.args...)
	err = s.readList(ctx, func(ctx context.Context, tx pgx.Tx) error {
		page = memory.AgentPage{}
		if !q.NoTotal {
			n := 0
			if err := tx.QueryRow(ctx, count, counted...).Scan(&n); err != nil {
				return err
			}
			page.Count(n)
		}
		page.Heads, err = pg.Collect(ctx, tx, func(row pgx.CollectableRow) (memory.Head, error) {
			no, h, err := s.scanListed(row)
			page.Places = append(page.Places, memory.AgentPlace{StartMS: h.Agent.StartMS, No: no})
			return h, err
		}, list, listed...)
		return err
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
