package sqlite

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/export"
	"github.com/heardlog/heardlog/memory/items"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/seal"
	"github.com/heardlog/heardlog/memory/sqlite/dbfile"
)

// exporter is one export under way, inside a read transaction.
type exporter struct {
	ctx    context.Context
	c      *dbfile.Conn
	sealer *seal.Sealer
	scope  export.Scope
	each   func(export.Record) error
}

// agentScope returns the condition on agents, named a.
func agentScope(s export.Scope) (string, []any) {
	if s.Project == "" {
		return "1", nil
	}
	p := s.Projects()
	if s.Agent != "" {
		return "a.project = ? AND a.id = ?", []any{p[0], s.Agent}
	}
	return "a.project IN (?, ?)", []any{p[0], p[1]}
}

// deliveryScope returns the condition on events, named e. An erased agent has no events.
func deliveryScope(s export.Scope) (string, []any) {
	where, args := "(e.agent_no = 0 OR EXISTS (SELECT 1 FROM agent a WHERE a.no = e.agent_no))", []any(nil)
	if s.Project != "" {
		where, args = where+" AND e.project = ?", append(args, s.Project)
	}
	if s.Agent != "" {
		where, args = where+" AND e.agent_id = ?", append(args, s.Agent)
	}
	return where, args
}

func (x *exporter) run() error {
	for _, part := range []func() error{x.start, x.keys, x.endpoints, x.agents, x.items, x.working, x.conversations, x.values, x.events, x.deliveries} {
		if x.ctx.Err() != nil {
			return dbfile.Ended(x.ctx)
		}
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

func (x *exporter) start() error {
	where, args := deliveryScope(x.scope)
	n, err := x.c.Number("SELECT max(d.id) FROM delivery d JOIN event e ON e.no = d.event_no WHERE "+where, args...)
	if err != nil {
		return err
	}
	return x.each(export.Record{Start: &export.Start{LastDelivery: n}})
}

func (x *exporter) keys() error {
	if x.scope.Project != "" {
		return nil
	}
	return x.c.Each("SELECT key, value FROM meta WHERE key LIKE 'key %' ORDER BY key", nil, func(row dbfile.Row) error {
		plain, err := x.sealer.Open(row.Blob(1), row.Text(0))
		if err != nil {
			return x.scope.Fail(row.Text(0), err)
		}
		return x.each(export.Record{Key: &export.Key{Name: strings.TrimPrefix(row.Text(0), keyOwner("")), Value: bytes.Clone(plain)}})
	})
}

func (x *exporter) endpoints() error {
	where, args := "1", []any(nil)
	if x.scope.Project != "" {
		where, args = "p.project = ?", []any{x.scope.Project}
	}
	if x.scope.Agent != "" {
		where += " AND EXISTS (SELECT 1 FROM event e JOIN delivery d ON d.event_no = e.no WHERE e.project = p.project AND e.agent_id = ? AND d.endpoint_no = p.no)"
		args = append(args, x.scope.Agent)
	}
	return x.c.Each(selectEndpoint+"AND "+where+" ORDER BY no", args, func(row dbfile.Row) error {
		e, err := readEndpoint(x.sealer, row)
		if err != nil {
			return x.scope.Fail("endpoint "+row.Text(1), err)
		}
		return x.each(export.Record{Endpoint: &e})
	})
}

func (x *exporter) agents() error {
	where, args := agentScope(x.scope)
	return x.c.Each(selectAgent+"WHERE "+where+" ORDER BY a.no", args, func(row dbfile.Row) error {
		if x.ctx.Err() != nil {
			return dbfile.Ended(x.ctx)
		}
		no, head := readAgent(row)
		a := &head.Agent
		at := fmt.Sprintf("agent %s of project %s", a.ID, a.Project)
		if err := readSettings(x.c, x.sealer, no, a); err != nil {
			return x.scope.Fail(at, err)
		}
		if err := x.each(export.Record{Agent: &export.Agent{Agent: *a, HeadRev: head.Rev, NextSeq: head.NextSeq, LastTurn: head.LastTurn}}); err != nil {
			return err
		}
		out := export.Message{Project: a.Project, AgentID: a.ID}
		return x.c.Each("SELECT seq, rev, turn, client_id, body, shown FROM message WHERE agent_no = ? ORDER BY seq", []any{no}, func(row dbfile.Row) error {
			out.Message = memory.Message{}
			if err := readMessage(no, row, &out.Message); err != nil {
				return x.scope.Fail(fmt.Sprintf("message %d of %s", row.Int(0), at), err)
			}
			out.Unlike = (row.Bool(5)) != out.InHistory()
			return x.each(export.Record{Message: &out})
		})
	})
}

func (x *exporter) items() error {
	where, args := agentScope(x.scope)
	return x.c.Each("SELECT a.project, a.id, i.seq, i.project, i.id, i.user_id, i.session_id, i.task_id, i.agent_id FROM item i JOIN agent a ON a.no = i.agent_no WHERE "+where+" ORDER BY i.no", args,
		func(row dbfile.Row) error {
			return x.each(export.Record{Item: &export.Item{Project: row.Text(0), AgentID: row.Text(1), Seq: row.Int(2), Row: items.Row{
				Project: row.Text(3), ID: row.Text(4), Scope: memory.Scope{UserID: row.Text(5), SessionID: row.Text(6), TaskID: row.Text(7), AgentID: row.Text(8)},
			}}})
		})
}

func (x *exporter) working() error {
	where, args := agentScope(x.scope)
	return x.c.Each("SELECT a.project, a.id, w.key, w.body, w.updated_ms, w.expires_ms, w.size FROM kv w JOIN agent a ON a.no = w.agent_no WHERE "+where+" ORDER BY a.no, w.key", args, func(row dbfile.Row) error {
		w := export.Working{Project: row.Text(0), AgentID: row.Text(1), Key: row.Text(2), UpdatedMS: row.Int(4), ExpiresMS: row.Int(5), Noted: row.Int(6)}
		plain, err := x.sealer.Open(row.Blob(3), kvOwner(kv.Space{Project: w.Project, Agent: w.AgentID}, w.Key))
		if err != nil {
			return x.scope.Fail(fmt.Sprintf("key %s of agent %s of project %s", w.Key, w.AgentID, w.Project), err)
		}
		w.Value = plain
		return x.each(export.Record{Working: &w})
	})
}

// lasting is kv.Never. Entries of projects with another end are marks that a copy does not need.
const lasting = "9223372036854775807"

func (x *exporter) conversations() error {
	if x.scope.Agent != "" {
		return nil
	}
	where, args := "1", []any(nil)
	if x.scope.Project != "" {
		where, args = "project = ?", []any{x.scope.Project}
	}
	return x.c.Each("SELECT project, key, body FROM kv WHERE agent_no = 0 AND expires_ms = "+lasting+" AND "+where+" ORDER BY project, key", args, func(row dbfile.Row) error {
		project, id := row.Text(0), row.Text(1)
		plain, err := x.sealer.Open(row.Blob(2), kvOwner(kv.Space{Project: project}, id))
		if err != nil {
			return x.scope.Fail(fmt.Sprintf("conversation %s of project %s", id, project), err)
		}
		return x.each(export.Record{Conversation: &export.Conversation{Project: project, ID: id, Body: plain}})
	})
}

func (x *exporter) values() error {
	if x.scope.Agent != "" {
		return nil
	}
	where, args := "", []any(nil)
	if x.scope.Project != "" {
		where, args = " AND s.project = ?", []any{x.scope.Project}
	}
	return x.c.Each(`SELECT s.project, s.name, s.user_id, s.rev, r.id, r.rev, r.updated_ms, r.body, r.size FROM record_space s CROSS JOIN record r ON r.space_no = s.no
		WHERE r.body IS NOT NULL`+where+" ORDER BY s.project, s.name, s.user_id, r.id", args, func(row dbfile.Row) (err error) {
		v := export.Value{
			Project: row.Text(0), Name: row.Text(1), User: export.Text(row.Text(2)), SpaceRev: row.Int(3), ID: export.Text(row.Text(4)), Rev: row.Int(5), UpdatedMS: row.Int(6), Noted: row.Int(8),
		}
		if v.Body, err = x.sealer.Open(row.Blob(7), recordOwner(v.Space(), string(v.ID))); err != nil {
			return x.scope.Fail(fmt.Sprintf("record %s of %s of project %s", v.ID, v.Name, v.Project), err)
		}
		return x.each(export.Record{Value: &v})
	})
}

func (x *exporter) events() error {
	where, args := deliveryScope(x.scope)
	return x.c.Each("SELECT e.id, e.project, e.agent_id, e.type, e.created_ms, e.body, e.agent_no FROM event e WHERE "+where+" ORDER BY e.no", args, func(row dbfile.Row) error {
		return x.each(export.Record{Event: &export.Event{
			ID: row.Text(0), Project: row.Text(1), AgentID: row.Text(2), Type: int(row.Int(3)), CreatedMS: row.Int(4), Body: export.Text(anyText(row, 5)),
		}})
	})
}

// anyText reads a column that holds a blob, or text that a shell has put there.
func anyText(row dbfile.Row, i int) []byte {
	if s := row.Text(i); s != "" {
		return []byte(s)
	}
	return row.Blob(i)
}

func (x *exporter) deliveries() error {
	where, args := deliveryScope(x.scope)
	return x.c.Each(`SELECT d.id, e.id, e.project, p.id, p.gone_id, d.state, d.attempt, d.due_ms, d.fence, d.reason, d.created_ms, d.done_ms, d.first_ms, d.urgent, d.replay_of
		FROM delivery d JOIN event e ON e.no = d.event_no JOIN endpoint p ON p.no = d.endpoint_no WHERE `+where+" ORDER BY d.id", args, func(row dbfile.Row) error {
		d := export.Delivery{
			ID: row.Int(0), Event: row.Text(1), Project: row.Text(2), Endpoint: row.Text(3), Gone: row[3] == nil, State: stateName(row.Int(5)), Attempt: int(row.Int(6)),
			DueMS: row.Int(7), Fence: row.Int(8), Reason: export.Text(row.Text(9)), Created: row.Int(10), DoneMS: row.Int(11), FirstMS: row.Int(12),
			Urgent: row.Bool(13), ReplayOf: row.Int(14),
		}
		if d.Gone {
			d.Endpoint = row.Text(4)
		}
		var err error
		d.Attempts, err = readAttempts(x.c, d.ID, func(err error) error { return x.scope.Fail(fmt.Sprintf("an attempt of delivery %d", d.ID), err) })
		if err != nil {
			return err
		}
		return x.each(export.Record{Delivery: &d})
	})
}
