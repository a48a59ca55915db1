package statements

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/store/codec"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/webhook"
)

// Exporter exports a store. All fields but Body must be set.
type Exporter struct {
	DB     Reader
	Sealer encryption.Sealer
	// Agents is the end of a query for agents, named a: the columns of a head's revision, next Seq
	// and last turn and of the sealed settings, and the tables.
	Agents string
	// Packed is what selects the body of a message, as text or bytes.
	Packed string
	// Body, if not nil, returns the body of a message of the agent with a number from the stored
	// one. It fails if the row is damaged.
	Body func(no int64, m *memory.Message, stored []byte) ([]byte, error)
	// Claimed is the column of deliveries, named d, that is true during a claim.
	Claimed string
	// Bytes is the name of the collation that compares bytes.
	Bytes string
}

// Run calls each as export.Source.Export does.
func (x Exporter) Run(sc export.Scope, each func(export.Record) error) error {
	// What a snapshot holds has the keys of the same snapshot: callers may be erased meanwhile.
	x.Sealer = x.Sealer.Reading(func(no int64) (encryption.Wrapped, bool, error) { return DataKey(x.DB, no) })
	r := exporting{x, sc, each}
	for _, part := range []func() error{r.start, r.keys, r.endpoints, r.agents, r.items, r.working, r.conversations, r.values, r.events, r.deliveries} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// exporting is an export under way.
type exporting struct {
	Exporter
	scope export.Scope
	each  func(export.Record) error
}

// agentScope returns the condition on agents, named a.
func (x *exporting) agentScope() (string, []any) {
	p := x.scope.Projects()
	switch {
	case x.scope.Project == "":
		return "1 = 1", nil
	case x.scope.Agent != "":
		return "a.project = ? AND a.id = ?", []any{p[0], x.scope.Agent}
	}
	return "a.project IN (?, ?)", []any{p[0], p[1]}
}

// inProject returns the condition that a column holds the scope's project.
func (x *exporting) inProject(column string) (string, []any) {
	if x.scope.Project == "" {
		return "1 = 1", nil
	}
	return column + " = ?", []any{x.scope.Project}
}

// eventScope returns the condition on events, named e. An erased agent has no events.
func (x *exporting) eventScope() (string, []any) {
	if x.scope.Agent != "" {
		return "e.agent_no = (SELECT no FROM agent WHERE project = ? AND id = ?)", []any{x.scope.Project, x.scope.Agent}
	}
	where, args := x.inProject("e.project")
	return "(e.agent_no = 0 OR EXISTS (SELECT 1 FROM agent a WHERE a.no = e.agent_no)) AND " + where, args
}

func (x *exporting) start() error {
	where, args := x.eventScope()
	n, err := number(x.DB, "SELECT max(d.id) FROM delivery d JOIN event e ON e.no = d.event_no WHERE "+where, args...)
	if err != nil {
		return err
	}
	return x.each(export.Record{Start: &export.Start{LastDelivery: n}})
}

func (x *exporting) keys() error {
	if x.scope.Project != "" {
		return nil
	}
	return x.DB.Walk("SELECT key, value FROM meta WHERE key LIKE 'key %' ORDER BY key COLLATE "+x.Bytes, nil, func(row Row) error {
		plain, err := x.Sealer.Open(row.Blob(1), row.Text(0))
		if err != nil {
			return x.scope.Fail(row.Text(0), err)
		}
		return x.each(export.Record{Key: &export.Key{Name: strings.TrimPrefix(row.Text(0), keyOwner("")), Value: plain}})
	})
}

// EndpointColumns are the columns that ReadEndpoint reads.
const EndpointColumns = "no, id, project, body, secrets, last_success_ms, first_failure_ms, last_failure_ms"

// ReadEndpoint reads a row of EndpointColumns.
func ReadEndpoint(s *encryption.Sealer, row Row) (e webhook.Endpoint, err error) {
	plain, err := s.Open(row.Blob(4), EndpointOwner(row.Text(1)))
	if err != nil {
		return e, err
	}
	if e, err = webhook.DecodeEndpoint(row.Text(1), row.Text(2), row.Text(3), plain); err != nil {
		err = errors.Join(err, codec.ErrUnreadable)
	}
	e.LastSuccessMS, e.FirstFailureMS, e.LastFailureMS = row.Int(5), row.Int(6), row.Int(7)
	return e, err
}

func (x *exporting) endpoints() error {
	where, args := x.inProject("p.project")
	if x.scope.Agent != "" {
		events, of := x.eventScope()
		where, args = where+" AND EXISTS (SELECT 1 FROM event e JOIN delivery d ON d.event_no = e.no WHERE "+events+" AND d.endpoint_no = p.no)", append(args, of...)
	}
	return x.DB.Walk("SELECT "+EndpointColumns+" FROM endpoint p WHERE id IS NOT NULL AND "+where+" ORDER BY no", args, func(row Row) error {
		e, err := ReadEndpoint(&x.Sealer, row)
		if err != nil {
			return x.scope.Fail("endpoint "+row.Text(1), err)
		}
		return x.each(export.Record{Endpoint: &e})
	})
}

func (x *exporting) agents() error {
	where, args := x.agentScope()
	return x.DB.Walk("SELECT a.no, a.project, a.id, a.name, a.status, a.start_ms, a.stop_ms, a.message, a.rev, a.join_key, a.join_hash, "+x.Agents+" WHERE "+where+" ORDER BY a.no", args, func(row Row) error {
		a := export.Agent{
			Agent: memory.Agent{
				Project: row.Text(1), ID: row.Text(2), Name: row.Text(3), Status: memory.Status(row.Int(4)), StartMS: row.Int(5), StopMS: row.Int(6), Message: row.Text(7),
				Rev: row.Int(8), JoinKey: row.Text(9), JoinHash: row.Text(10),
			},
			HeadRev: row.Int(11), NextSeq: row.Int(12), LastTurn: row.Int(13),
		}
		plain, err := x.Sealer.Open(row.Blob(14), AgentOwner(a.Project, a.ID))
		if err == nil {
			err = codec.DecodeAgent(plain, &a.Agent)
		}
		if err == nil {
			a.Tally, err = memory.DecodeTally(row.Blob(15))
		}
		if err != nil {
			return x.scope.Fail(fmt.Sprintf("agent %s of project %s", a.ID, a.Project), err)
		}
		if err := x.each(export.Record{Agent: &a}); err != nil {
			return err
		}
		return x.messages(row.Int(0), &a)
	})
}

func (x *exporting) messages(no int64, a *export.Agent) error {
	const page = 100 // of bodies that may be long
	var near Near
	for after, n := int64(math.MinInt64), page; n == page; {
		// Opened later, since that may ask for keys.
		list, bodies := make([]export.Message, 0, page), make([][]byte, 0, page)
		err := x.DB.Each("SELECT seq, rev, turn, client_id, "+x.Packed+", shown FROM message WHERE agent_no = ? AND seq > ? ORDER BY seq LIMIT "+fmt.Sprint(page), []any{no, after}, func(row Row) error {
			m := export.Message{Project: a.Project, AgentID: a.ID, Message: memory.Message{Seq: row.Int(0), Rev: row.Int(1), TurnID: row.Int(2), ID: row.Text(3)}}
			body := []byte(row.Text(4))
			if b := row.Blob(4); b != nil {
				body = bytes.Clone(b)
			}
			m.Unlike = row.Bool(5)
			list, bodies = append(list, m), append(bodies, body)
			return nil
		})
		if err != nil {
			return err
		}
		n = len(list)
		for i := range list {
			m, body := &list[i], bodies[i]
			after = m.Seq
			var err error
			if x.Body != nil {
				body, err = x.Body(no, &m.Message, body)
			}
			if err == nil {
				err = OpenMessage(x.Sealer, no, body, &m.Message)
			}
			if err == nil {
				m.Unlike = m.Unlike != m.InHistory()
				near.Add(&m.Message)
				near.Inline(&m.Message)
				err = x.each(export.Record{Message: m})
			} else {
				err = x.scope.Fail(fmt.Sprintf("message %d of agent %s of project %s", m.Seq, a.ID, a.Project), err)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *exporting) items() error {
	where, args := x.agentScope()
	return x.DB.Walk("SELECT a.project, a.id, i.seq, i.project, i.id, i.user_id, i.session_id, i.task_id, i.agent_id FROM item i JOIN agent a ON a.no = i.agent_no WHERE "+where+" ORDER BY i.no", args,
		func(row Row) error {
			it := &export.Item{Project: row.Text(0), AgentID: row.Text(1), Seq: row.Int(2), Row: memories.Row{
				Project: row.Text(3), ID: row.Text(4), Scope: memory.Scope{UserID: row.Text(5), SessionID: row.Text(6), TaskID: row.Text(7), AgentID: row.Text(8)},
			}}
			it.Row.Restore(it.Project, it.AgentID, it.Seq)
			return x.each(export.Record{Item: it})
		})
}

func (x *exporting) working() error {
	where, args := x.agentScope()
	return x.DB.Walk("SELECT a.project, a.id, w.key, w.body, w.updated_ms, w.expires_ms, w.size, w.pinned FROM kv w JOIN agent a ON a.no = w.agent_no WHERE "+where+" ORDER BY a.no, w.key", args, func(row Row) error {
		w := export.Working{Project: row.Text(0), AgentID: row.Text(1), Key: row.Text(2), UpdatedMS: row.Int(4), ExpiresMS: row.Int(5), Noted: row.Int(6), Pinned: row.Bool(7)}
		plain, err := x.Sealer.Open(row.Blob(3), KVOwner(kv.Space{Project: w.Project, Agent: w.AgentID}, w.Key))
		if err != nil {
			return x.scope.Fail(fmt.Sprintf("key %s of agent %s of project %s", w.Key, w.AgentID, w.Project), err)
		}
		w.Value = plain
		return x.each(export.Record{Working: &w})
	})
}

func (x *exporting) conversations() error {
	if x.scope.Agent != "" {
		return nil
	}
	// Entries of the server's own (~) that end are marks that a copy does not need.
	where, args := "1 = 1", []any{int64(kv.Never)}
	if p := x.scope.Project; p != "" {
		by := "project COLLATE " + x.Bytes
		where, args = "(project = ? OR "+by+" > ? AND "+by+" < ?)", append(args, p, p+"/", p+"0") // 0 follows the slash
	}
	return x.DB.Walk("SELECT project, key, body, updated_ms, expires_ms, pinned FROM kv WHERE agent_no = 0 AND (expires_ms = ? OR project NOT LIKE '~%') AND "+where+" ORDER BY project COLLATE "+x.Bytes+", key", args, func(row Row) error {
		c := export.Conversation{Project: row.Text(0), ID: row.Text(1)}
		plain, err := x.Sealer.Open(row.Blob(2), KVOwner(kv.Space{Project: c.Project}, c.ID))
		if err != nil {
			return x.scope.Fail(fmt.Sprintf("conversation %s of project %s", c.ID, c.Project), err)
		}
		project, name, ok := strings.Cut(c.Project, "/")
		if !strings.HasPrefix(project, "~") {
			c.UpdatedMS = row.Int(3)
		}
		if ok && !strings.HasPrefix(project, "~") {
			c.Project, c.Namespace = project, name
			c.Pinned = row.Bool(5)
			if end := row.Int(4); end != kv.Never {
				c.ExpiresMS = end
			}
		}
		c.Body = plain
		return x.each(export.Record{Conversation: &c})
	})
}

func (x *exporting) values() error {
	if x.scope.Agent != "" {
		return nil
	}
	where, args := x.inProject("s.project")
	return x.DB.Walk("SELECT s.project, s.name, s.user_id, s.rev, r.id, r.rev, r.updated_ms, r.body, r.size FROM record_space s JOIN record r ON r.space_no = s.no WHERE r.body IS NOT NULL AND s.name NOT LIKE '"+record.Local+"%' AND "+
		where+" ORDER BY s.project COLLATE "+x.Bytes+", s.name, s.user_id, r.id", args, func(row Row) (err error) {
		v := export.Value{
			Project: row.Text(0), Name: row.Text(1), User: export.Text(row.Text(2)), SpaceRev: row.Int(3), ID: export.Text(row.Text(4)), Rev: row.Int(5), UpdatedMS: row.Int(6), Noted: row.Int(8),
		}
		if v.Body, err = x.Sealer.Open(row.Blob(7), RecordOwner(v.Space(), string(v.ID))); err != nil {
			return x.scope.Fail(fmt.Sprintf("record %s of %s of project %s", v.ID, v.Name, v.Project), err)
		}
		return x.each(export.Record{Value: &v})
	})
}

func (x *exporting) events() error {
	where, args := x.eventScope()
	return x.DB.Walk("SELECT e.id, e.project, e.agent_id, e.type, e.created_ms, e.body FROM event e WHERE "+where+" ORDER BY e.no", args, func(row Row) error {
		body := row.Blob(5)
		if body == nil {
			body = []byte(row.Text(5)) // a SQLite shell has put it there
		}
		body, err := OpenEvent(x.Sealer, row.Text(0), body)
		if err != nil {
			return x.scope.Fail(fmt.Sprintf("event %s of project %s", row.Text(0), row.Text(1)), err)
		}
		return x.each(export.Record{Event: &export.Event{
			ID: row.Text(0), Project: row.Text(1), AgentID: row.Text(2), Type: int(row.Int(3)), CreatedMS: row.Int(4), Body: body,
		}})
	})
}

// deliveries reads a row for each attempt, or one for a delivery without attempts.
func (x *exporting) deliveries() error {
	where, args := x.eventScope()
	var d *export.Delivery
	emit := func() error {
		if d == nil {
			return nil
		}
		return x.each(export.Record{Delivery: d})
	}
	err := x.DB.Walk(`SELECT d.id, e.id, e.project, coalesce(p.id, p.gone_id, ''), p.id IS NULL, d.state, d.attempt, d.due_ms, d.fence, d.reason, d.created_ms, d.done_ms, d.first_ms, d.urgent,
			d.replay_of, e.created_ms, `+x.Claimed+`, t.n, `+attemptColumns+`
		FROM event e JOIN delivery d ON d.event_no = e.no JOIN endpoint p ON p.no = d.endpoint_no LEFT JOIN attempt t ON t.delivery_id = d.id
		WHERE `+where+" ORDER BY d.id, t.n, t.fence", args, func(row Row) error {
		if d == nil || d.ID != row.Int(0) {
			if err := emit(); err != nil {
				return err
			}
			d = readDelivery(row)
		}
		if row.Null(17) {
			return nil
		}
		a, err := readAttempt(row, 17)
		d.Attempts = append(d.Attempts, a)
		return x.scope.Fail(fmt.Sprintf("an attempt of delivery %d", d.ID), err)
	})
	if err != nil {
		return err
	}
	return emit()
}

// readDelivery reads a delivery without its attempts.
func readDelivery(row Row) *export.Delivery {
	d := &export.Delivery{
		ID: row.Int(0), Event: row.Text(1), Project: row.Text(2), Endpoint: row.Text(3), Gone: row.Bool(4), State: webhook.StateOf(int(row.Int(5))), Attempt: int(row.Int(6)), DueMS: row.Int(7),
		Fence: row.Int(8), Reason: export.Text(row.Text(9)), Created: row.Int(10), DoneMS: row.Int(11), FirstMS: row.Int(12), Urgent: row.Bool(13), ReplayOf: row.Int(14),
	}
	if d.FirstMS == d.Created {
		d.FirstMS = 0
	}
	d.Free(row.Bool(16), row.Int(15))
	return d
}
