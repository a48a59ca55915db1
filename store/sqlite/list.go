package sqlite

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
)

// agentPart selects a part of the agents of a list. Its text depends on which filters are set, not
// on their values.
type agentPart struct {
	from, where string
	args        []any
	start, no   string // the columns that order the agents
}

func (p *agentPart) and(cond string, args ...any) {
	p.where += " AND " + cond
	p.args = append(p.args, args...)
}

// agentParts returns the parts of a list. Agents with a tag are found by the tag. Others are found
// by status, each status by itself, since an index has the agents of one status in order.
func agentParts(q *memory.AgentQuery) (parts []agentPart) {
	statuses := q.AnyStatus()
	if tags := q.Tags(); len(tags) > 0 {
		p := agentPart{from: "agent_tag g CROSS JOIN agent a ON a.no = g.agent_no", start: "g.start_ms", no: "g.agent_no"}
		p.where, p.args = "g.project = ? AND g.name = ?", []any{q.Project, tags[0].Name}
		if values := tags[0].Values; len(values) == 1 {
			p.and("g.value = ?", values[0])
		} else {
			p.and("g.value IN (SELECT value FROM json_each(?))", listArg(values))
		}
		if len(tags) > 1 { // each tag has one value
			p.and(`NOT EXISTS (SELECT 1 FROM json_each(?) t WHERE NOT EXISTS (SELECT 1 FROM agent_tag x WHERE x.project = g.project
				AND x.name = t.value ->> '$.Name' AND x.value = t.value ->> '$.Values[0]' AND x.start_ms = g.start_ms AND x.agent_no = g.agent_no))`, listArg(tags[1:]))
		}
		if len(q.Statuses) > 0 {
			p.and("a.status IN (SELECT value FROM json_each(?))", listArg(statuses))
		}
		parts = append(parts, p)
	} else {
		for _, st := range statuses {
			p := agentPart{where: "a.project = ? AND a.status = ?", args: []any{q.Project, int64(st)}, start: "a.start_ms", no: "a.no"}
			p.from = "agent a INDEXED BY " + agentIndex(q)
			parts = append(parts, p)
		}
	}
	for i := range parts {
		p := &parts[i]
		if q.Channel != "" {
			p.and("a.channel = ?", q.Channel)
		}
		if q.Name != "" {
			p.and("a.name = ?", q.Name)
		}
		if q.FromMS != 0 {
			p.and(p.start+" >= ?", q.FromMS)
		}
		if q.ToMS != 0 {
			p.and(p.start+" <= ?", q.ToMS)
		}
	}
	return parts
}

// agentIndex returns the index for a list of one status. Without statistics SQLite would choose any
// index.
func agentIndex(q *memory.AgentQuery) string {
	switch {
	case q.Name != "":
		return "agent_name_start"
	case q.Channel != "":
		return "agent_channel"
	}
	return "agent_state_start"
}

// listArg returns a list as an argument for json_each, so that the text of a statement does not
// depend on its length.
func listArg[T string | int64 | memory.Status | memory.TagValues](list []T) string {
	b, _ := json.Marshal(list) // these always encode
	return string(b)
}

// List lists a project's agents. It counts up to memory.MaxCounted.
func (s *Store) List(ctx context.Context, q memory.AgentQuery) (page memory.AgentPage, err error) {
	if q.Picks() {
		return s.pick(ctx, &q)
	}
	parts, limit := agentParts(&q), max(q.Limit, 1)
	err = s.db.Read(ctx, "list agents", func(c *dbfile.Conn) error {
		page = memory.AgentPage{}
		total := 0
		var found []foundAgent
		for _, p := range parts {
			if !q.NoTotal {
				n, err := p.count(c)
				if err != nil {
					return err
				}
				if total += n; n == 0 {
					continue
				}
			}
			if found, err = p.list(c, &q, limit+1, found); err != nil {
				return err
			}
		}
		page.Count(total)
		slices.SortFunc(found, func(a, b foundAgent) int { return a.Compare(b.AgentPlace, q.OldestFirst) })
		if len(found) > limit {
			page.Next, found = found[limit-1].AgentPlace, found[:limit]
		}
		page.Places, page.Heads = make([]memory.AgentPlace, len(found)), make([]memory.Head, len(found))
		return s.readFound(c, &q, found, &page)
	})
	return page, err
}

// pick lists agents by what their tallies say.
func (s *Store) pick(ctx context.Context, q *memory.AgentQuery) (page memory.AgentPage, err error) {
	err = s.db.Read(ctx, "list agents", func(c *dbfile.Conn) error {
		page = memory.AgentPage{}
		picker := memory.Picker{Query: q}
		for _, p := range agentParts(q) {
			picker.Part()
			at, order := p.after(q.ReadsAfter(), q.ReadsOldest())
			err := c.Each("SELECT "+p.start+", "+p.no+", a.tally FROM "+p.from+" WHERE "+at.where+" ORDER BY "+order+" LIMIT ?+0", append(at.args, int64(memory.MaxPicked)+1), func(row dbfile.Row) error {
				more, err := picker.Add(memory.AgentPlace{StartMS: row.Int(0), No: row.Int(1)}, row.Blob(2))
				switch {
				case err != nil:
					return err
				case ctx.Err() != nil:
					return fault.Ended(ctx)
				case !more:
					return errPicked
				}
				return nil
			})
			if err != nil && !errors.Is(err, errPicked) {
				return err
			}
		}
		picker.Page(&page)
		found := make([]foundAgent, len(page.Places))
		for i := range found {
			found[i].AgentPlace = page.Places[i]
		}
		page.Heads, q.Known = make([]memory.Head, len(found)), nil
		return s.readFound(c, q, found, &page)
	})
	return page, err
}

// errPicked ends the reading of a part of a list.
var errPicked = errors.New("enough was read")

// foundAgent is an agent of a list before its head is read.
type foundAgent struct {
	memory.AgentPlace
	id  string
	rev int64
}

// readFound sets the places and heads of a page. The heads that the caller does not know are read
// in one statement.
func (s *Store) readFound(c *dbfile.Conn, q *memory.AgentQuery, found []foundAgent, page *memory.AgentPage) error {
	var nos, at []int64 // of the agents to be read: their numbers, and their indexes in the page
	for i := range found {
		f := &found[i]
		page.Places[i] = f.AgentPlace
		if q.Known == nil || !q.Known(memory.Ref{Project: q.Project, ID: f.id}, memory.Version{No: f.No, Rev: f.rev}, &page.Heads[i]) {
			nos, at = append(nos, f.No), append(at, int64(i))
		}
	}
	if len(nos) == 0 {
		return nil
	}
	const sql = selectAgent + `, j.key FROM json_each(?) j CROSS JOIN agent a ON a.no = j.value LEFT JOIN agent_settings s ON s.agent_no = a.no`
	return c.Each(sql, []any{listArg(nos)}, func(row dbfile.Row) error {
		_, h, err := readAgent(row, &s.sealer)
		page.Heads[at[row.Int(16)]] = h
		return err
	})
}

// Tallies implements memory.Store.
func (s *Store) Tallies(ctx context.Context, project string, fromMS, toMS int64, each func(int64, []byte) error) error {
	var own error
	err := s.db.Read(ctx, "read tallies", func(c *dbfile.Conn) error {
		for st := range memory.Statuses { // the index has the agents of one status in order
			err := c.Each("SELECT start_ms, tally FROM agent INDEXED BY agent_state_start WHERE project = ? AND status = ? AND start_ms BETWEEN ? AND ?",
				[]any{project, int64(st), fromMS, toMS}, func(row dbfile.Row) error {
					if own = each(row.Int(0), row.Blob(1)); own == nil && ctx.Err() != nil {
						own = fault.Ended(ctx)
					}
					return own
				})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return cmp.Or(own, err)
}

// count counts the agents that match, up to one more than memory.MaxCounted.
func (p *agentPart) count(c *dbfile.Conn) (int, error) {
	n, err := c.Number("SELECT count(*) FROM (SELECT 1 FROM "+p.from+" WHERE "+p.where+" LIMIT ?+0)", append(slices.Clone(p.args), int64(memory.MaxCounted)+1)...)
	return int(n), err
}

// after returns the agents of a part after a place, and their order.
func (p *agentPart) after(place memory.AgentPlace, oldestFirst bool) (at agentPart, order string) {
	at, than, desc := *p, " < ", " DESC"
	if oldestFirst {
		than, desc = " > ", ""
	}
	at.args = slices.Clone(p.args)
	if place != (memory.AgentPlace{}) {
		at.and("("+p.start+", "+p.no+")"+than+"(?, ?)", place.StartMS, place.No)
	}
	return at, p.start + desc + ", " + p.no + desc
}

// list appends the first agents after q.After.
func (p *agentPart) list(c *dbfile.Conn, q *memory.AgentQuery, limit int, found []foundAgent) ([]foundAgent, error) {
	at, order := p.after(q.After, q.OldestFirst)
	err := c.Each("SELECT "+p.start+", "+p.no+", a.id, a.head_rev FROM "+p.from+" WHERE "+at.where+" ORDER BY "+order+" LIMIT ?+0", append(at.args, int64(limit)), func(row dbfile.Row) error {
		found = append(found, foundAgent{memory.AgentPlace{StartMS: row.Int(0), No: row.Int(1)}, row.Text(2), row.Int(3)})
		return nil
	})
	return found, err
}
