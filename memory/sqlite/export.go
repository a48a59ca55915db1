package sqlite

import (
	"bytes"
	"context"
	"database/sql/driver"
	"fmt"
	"strings"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/export"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/seal"
	"github.com/heardlog/heardlog/webhook"
)

// exporter is one export under way, inside a read transaction.
type exporter struct {
	ctx    context.Context
	c      *conn
	sealer *seal.Sealer
	scope  export.Scope
	each   func(export.Record) error
}

// agentScope returns the condition on agents, named a.
func agentScope(s export.Scope) (string, []driver.Value) {
	if s.Project == "" {
		return "1", nil
	}
	p := s.Projects()
	if s.Agent != "" {
		return "a.project = ? AND a.id = ?", []driver.Value{p[0], s.Agent}
	}
	return "a.project IN (?, ?)", []driver.Value{p[0], p[1]}
}

// deliveryScope returns the condition on events, named e. An erased agent has no events.
func deliveryScope(s export.Scope) (string, []driver.Value) {
	where, args := "(e.agent_no = 0 OR EXISTS (SELECT 1 FROM agent a WHERE a.no = e.agent_no))", []driver.Value(nil)
	if s.Project != "" {
		where, args = where+" AND e.project = ?", append(args, s.Project)
	}
	if s.Agent != "" {
		where, args = where+" AND e.agent_id = ?", append(args, s.Agent)
	}
	return where, args
}

func (x *exporter) run() error {
	for _, part := range []func() error{x.start, x.keys, x.endpoints, x.agents, x.items, x.working, x.conversations, x.events, x.deliveries} {
		if x.ctx.Err() != nil {
			return ended(x.ctx)
		}
		if err := part(); err != nil {
			return classify(err, "export")
		}
	}
	return nil
}

func (x *exporter) start() error {
	where, args := deliveryScope(x.scope)
	n, err := x.c.number("SELECT max(d.id) FROM delivery d JOIN event e ON e.no = d.event_no WHERE "+where, args...)
	if err != nil {
		return err
	}
	return x.each(export.Record{Start: &export.Start{LastDelivery: n}})
}

func (x *exporter) keys() error {
	if x.scope.Project != "" {
		return nil
	}
	return x.c.each("SELECT key, value FROM meta WHERE key LIKE 'key %' ORDER BY key", nil, func(row []driver.Value) error {
		plain, err := x.sealer.Open(blob(row[1]), text(row[0]))
		if err != nil {
			return x.scope.Fail(text(row[0]), err)
		}
		return x.each(export.Record{Key: &export.Key{Name: strings.TrimPrefix(text(row[0]), keyOwner("")), Value: bytes.Clone(plain)}})
	})
}

func (x *exporter) endpoints() error {
	where, args := "1", []driver.Value(nil)
	if x.scope.Project != "" {
		where, args = "p.project = ?", []driver.Value{x.scope.Project}
	}
	if x.scope.Agent != "" {
		where += " AND EXISTS (SELECT 1 FROM event e JOIN delivery d ON d.event_no = e.no WHERE e.project = p.project AND e.agent_id = ? AND d.endpoint_no = p.no)"
		args = append(args, x.scope.Agent)
	}
	return x.c.each("SELECT no, id, project, body, secrets, last_success_ms, first_failure_ms, last_failure_ms FROM endpoint p WHERE id IS NOT NULL AND "+where+" ORDER BY no", args, func(row []driver.Value) error {
		plain, err := x.sealer.Open(blob(row[4]), endpointOwner(text(row[1])))
		if err != nil {
			return x.scope.Fail("endpoint "+text(row[1]), err)
		}
		e, err := webhook.DecodeEndpoint(text(row[1]), text(row[2]), text(row[3]), plain)
		if err != nil {
			return x.scope.Fail("endpoint "+text(row[1]), err)
		}
		e.LastSuccessMS, e.FirstFailureMS, e.LastFailureMS = integer(row[5]), integer(row[6]), integer(row[7])
		return x.each(export.Record{Endpoint: &e})
	})
}

func (x *exporter) agents() error {
	where, args := agentScope(x.scope)
	return x.c.each(selectAgent+"WHERE "+where+" ORDER BY a.no", args, func(row []driver.Value) error {
		if x.ctx.Err() != nil {
			return ended(x.ctx)
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
		return x.c.each("SELECT seq, rev, turn, client_id, body, shown FROM message WHERE agent_no = ? ORDER BY seq", []driver.Value{no}, func(row []driver.Value) error {
			out.Message = memory.Message{}
			if err := readMessage(row, &out.Message); err != nil {
				return x.scope.Fail(fmt.Sprintf("message %d of %s", integer(row[0]), at), err)
			}
			out.Unlike = (integer(row[5]) != 0) != out.InHistory()
			return x.each(export.Record{Message: &out})
		})
	})
}

func (x *exporter) items() error {
	where, args := agentScope(x.scope)
	return x.c.each("SELECT a.project, a.id, i.seq, i.project, i.id, i.user_id, i.session_id, i.task_id, i.agent_id FROM item i JOIN agent a ON a.no = i.agent_no WHERE "+where+" ORDER BY i.no", args,
		func(row []driver.Value) error {
			return x.each(export.Record{Item: &export.Item{Project: text(row[0]), AgentID: text(row[1]), Seq: integer(row[2]), Row: memory.ItemRow{
				Project: text(row[3]), ID: text(row[4]), Scope: memory.Scope{UserID: text(row[5]), SessionID: text(row[6]), TaskID: text(row[7])}, AgentID: text(row[8]),
			}}})
		})
}

func (x *exporter) working() error {
	where, args := agentScope(x.scope)
	return x.c.each("SELECT a.project, a.id, w.key, w.body, w.updated_ms, w.expires_ms, w.size FROM kv w JOIN agent a ON a.no = w.agent_no WHERE "+where+" ORDER BY a.no, w.key", args, func(row []driver.Value) error {
		w := export.Working{Project: text(row[0]), AgentID: text(row[1]), Key: text(row[2]), UpdatedMS: integer(row[4]), ExpiresMS: integer(row[5]), Noted: integer(row[6])}
		plain, err := x.sealer.Open(blob(row[3]), kvOwner(kv.Space{Project: w.Project, Agent: w.AgentID}, w.Key))
		if err != nil {
			return x.scope.Fail(fmt.Sprintf("key %s of agent %s of project %s", w.Key, w.AgentID, w.Project), err)
		}
		w.Value = plain
		return x.each(export.Record{Working: &w})
	})
}

func (x *exporter) conversations() error {
	if x.scope.Agent != "" {
		return nil
	}
	where, args := "1", []driver.Value(nil)
	if x.scope.Project != "" {
		where, args = "project = ?", []driver.Value{x.scope.Project}
	}
	return x.c.each("SELECT project, key, body FROM kv WHERE agent_no = 0 AND "+where+" ORDER BY project, key", args, func(row []driver.Value) error {
		project, id := text(row[0]), text(row[1])
		plain, err := x.sealer.Open(blob(row[2]), kvOwner(kv.Space{Project: project}, id))
		if err != nil {
			return x.scope.Fail(fmt.Sprintf("conversation %s of project %s", id, project), err)
		}
		return x.each(export.Record{Conversation: &export.Conversation{Project: project, ID: id, Body: plain}})
	})
}

func (x *exporter) events() error {
	where, args := deliveryScope(x.scope)
	return x.c.each("SELECT e.id, e.project, e.agent_id, e.type, e.created_ms, e.body, e.agent_no FROM event e WHERE "+where+" ORDER BY e.no", args, func(row []driver.Value) error {
		return x.each(export.Record{Event: &export.Event{
			ID: text(row[0]), Project: text(row[1]), AgentID: text(row[2]), Type: int(integer(row[3])), CreatedMS: integer(row[4]), Body: export.Text(anyText(row[5])),
		}})
	})
}

// anyText reads a column that holds a blob, or text that a shell has put there.
func anyText(v driver.Value) []byte {
	if s, ok := v.(string); ok {
		return []byte(s)
	}
	return blob(v)
}

func (x *exporter) deliveries() error {
	where, args := deliveryScope(x.scope)
	return x.c.each(`SELECT d.id, e.id, e.project, p.id, p.gone_id, d.state, d.attempt, d.due_ms, d.fence, d.reason, d.created_ms, d.done_ms, d.first_ms, d.urgent, d.replay_of
		FROM delivery d JOIN event e ON e.no = d.event_no JOIN endpoint p ON p.no = d.endpoint_no WHERE `+where+" ORDER BY d.id", args, func(row []driver.Value) error {
		d := export.Delivery{
			ID: integer(row[0]), Event: text(row[1]), Project: text(row[2]), Endpoint: text(row[3]), Gone: row[3] == nil, State: stateName(integer(row[5])), Attempt: int(integer(row[6])),
			DueMS: integer(row[7]), Fence: integer(row[8]), Reason: export.Text(text(row[9])), Created: integer(row[10]), DoneMS: integer(row[11]), FirstMS: integer(row[12]),
			Urgent: integer(row[13]) != 0, ReplayOf: integer(row[14]),
		}
		if d.Gone {
			d.Endpoint = text(row[4])
		}
		err := x.c.each(`SELECT n, started_ms, duration_ms, status, error_class, error, response, truncated, detail
			FROM attempt WHERE delivery_id = ? ORDER BY n, fence`, []driver.Value{d.ID}, func(row []driver.Value) error {
			detail, err := webhook.DecodeDetail(text(row[8]))
			d.Attempts = append(d.Attempts, webhook.Attempt{
				N: int(integer(row[0])), StartedMS: integer(row[1]), DurationMS: integer(row[2]), Status: int(integer(row[3])),
				ErrorClass: text(row[4]), Error: text(row[5]), Response: bytes.Clone(blob(row[6])), Truncated: integer(row[7]) != 0, Detail: detail,
			})
			return x.scope.Fail(fmt.Sprintf("an attempt of delivery %d", d.ID), err)
		})
		if err != nil {
			return err
		}
		return x.each(export.Record{Delivery: &d})
	})
}

// allText returns the first column of a query's rows.
func allText(c *conn, sql string) (out []string, err error) {
	err = c.each(sql, nil, func(row []driver.Value) error { out = append(out, text(row[0])); return nil })
	return out, err
}
