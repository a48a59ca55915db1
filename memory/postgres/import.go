package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/codec"
	"github.com/heardlog/heardlog/memory/export"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/webhook"
)

var _ export.Target = (*Store)(nil)

// Mark implements export.Target.
func (s *Store) Mark(ctx context.Context) (mark []byte, err error) {
	err = s.read(ctx, "read the mark", func(ctx context.Context) error {
		err := s.pool.QueryRow(ctx, "SELECT value FROM meta WHERE key = $1", importMark).Scan(&mark)
		if noRows(err) {
			return nil
		}
		return err
	})
	return mark, err
}

// Unfinished reports whether an import is unfinished, so that its end may be missing.
func (s *Store) Unfinished(ctx context.Context) (bool, error) {
	mark, err := s.Mark(ctx)
	return mark != nil, err
}

// Reserve implements export.Target. It takes n IDs out of the sequence of deliveries.
func (s *Store) Reserve(ctx context.Context, n int64) (last int64, err error) {
	err = s.transact(ctx, "keep ids of deliveries", func(ctx context.Context, tx pgx.Tx) error {
		// The lock serializes imports.
		if _, err := tx.Exec(ctx, "SELECT 1 FROM counter WHERE key = 'endpoints' FOR UPDATE"); err != nil {
			return err
		}
		// A server draws the number of a delivery and stores the delivery in one statement, and no
		// statement is between the two here.
		if _, err := tx.Exec(ctx, "LOCK TABLE delivery IN SHARE ROW EXCLUSIVE MODE"); err != nil && !unsupported(err) {
			return err
		}
		var max int64
		if err := tx.QueryRow(ctx, "SELECT coalesce(max(id), 0) FROM delivery").Scan(&max); err != nil {
			return err
		}
		var next int64
		if err := tx.QueryRow(ctx, "SELECT nextval(pg_get_serial_sequence('delivery', 'id'))").Scan(&next); err != nil {
			return err
		}
		// If no delivery has an ID, an import that never started may have reserved them.
		if last = max; max > 0 && next-1 > max {
			last = next - 1
		}
		if last+n < next {
			return nil
		}
		_, err := tx.Exec(ctx, "SELECT setval(pg_get_serial_sequence('delivery', 'id'), $1)", last+n)
		return err
	})
	return last, err
}

// Import implements export.Target. It may run beside servers, which see each agent from its first
// batch on.
func (s *Store) Import(ctx context.Context, batch []export.Record, had, mark []byte) error {
	m := &importer{s: s}
	err := s.transact(ctx, "import", func(ctx context.Context, tx pgx.Tx) error {
		*m = importer{s: s, tx: tx, nos: map[key]int64{}}
		// First, so that a concurrent import waits here.
		if err := m.move(ctx, had, mark); err != nil {
			return err
		}
		// Lock the counter first, as every change of endpoints does.
		if slices.ContainsFunc(batch, func(r export.Record) bool { return r.Endpoint != nil }) {
			if _, err := tx.Exec(ctx, "UPDATE counter SET n = n + 1 WHERE key = 'endpoints'"); err != nil {
				return err
			}
		}
		for i := range batch {
			if err := m.record(ctx, &batch[i]); err != nil {
				return err
			}
		}
		return clash(m.writeMessages(ctx), "a message of this part of the export")
	})
	if err != nil {
		return err
	}
	s.wake()
	if m.changed {
		return s.failed(ctx, s.loadEndpoints(ctx, s.pool), "read endpoints")
	}
	return nil
}

// move replaces the stored mark.
func (m *importer) move(ctx context.Context, had, mark []byte) error {
	sql, args := "UPDATE meta SET value = $3 WHERE key = $1 AND value = $2", []any{importMark, had, mark}
	switch {
	case had == nil && mark == nil:
		sql, args = "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM meta WHERE key = $1)", args[:1]
	case had == nil:
		sql, args = "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING", []any{importMark, mark}
	case mark == nil:
		sql, args = "DELETE FROM meta WHERE key = $1 AND value = $2", args[:2]
	}
	done, err := m.tx.Exec(ctx, sql, args...)
	if err == nil && done.RowsAffected() != 1 {
		err = export.ErrMoved()
	}
	return err
}

// importer is one batch under way.
type importer struct {
	s        *Store
	tx       pgx.Tx
	nos      map[key]int64
	messages rows // written together
	changed  bool // whether endpoints changed
}

// writeMessages writes the messages. Servers that have read their agents must read them again.
func (m *importer) writeMessages(ctx context.Context) error {
	r := &m.messages
	if len(r.nos) == 0 {
		return nil
	}
	st := &statement{}
	st.with("head", `UPDATE agent_head h SET ver = h.ver + 1, written = h.written + u.n
		FROM (SELECT t.no, sum(octet_length(t.body)) AS n FROM unnest(?::bigint[], ?::text[]) t (no, body) GROUP BY t.no) u
		WHERE h.agent_no = u.no AND h.agent_no IN (SELECT agent_no FROM agent_head WHERE agent_no = ANY(?::bigint[]) ORDER BY agent_no FOR UPDATE) RETURNING h.agent_no`, r.nos, r.bodies, r.nos)
	r.insert(st)
	b := &pgx.Batch{}
	st.queue(b)
	return m.tx.SendBatch(ctx, b).Close()
}

// clash adds to a unique violation the record that the store has no place for. It returns other
// errors unchanged.
func clash(err error, format string, args ...any) error {
	if violated(err) != "" {
		return fault.Wrap(fault.Conflict, err, fmt.Sprintf(format, args...)+" cannot be imported: the store holds something in its place already")
	}
	return err
}

func (m *importer) record(ctx context.Context, r *export.Record) error {
	switch {
	case r.Key != nil:
		name := keyOwner(r.Key.Name)
		_, err := m.tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING", name, m.s.sealer.Seal(r.Key.Value, name))
		return err
	case r.Endpoint != nil:
		return m.endpoint(ctx, r)
	case r.Agent != nil:
		return m.agent(ctx, r.Agent)
	case r.Message != nil:
		return m.message(ctx, r.Message)
	case r.Item != nil:
		no, err := m.agentNo(ctx, r.Item.Project, r.Item.AgentID)
		if err != nil {
			return err
		}
		row := &r.Item.Row
		_, err = m.tx.Exec(ctx, "INSERT INTO item (project, id, agent_no, seq, user_id, session_id, task_id, agent_id) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
			stored(row.Project), stored(row.ID), no, r.Item.Seq, stored(row.UserID), stored(row.SessionID), stored(row.TaskID), stored(row.AgentID))
		return clash(err, "item %s of project %s", row.ID, row.Project)
	case r.Working != nil:
		e := r.Working
		no, err := m.agentNo(ctx, e.Project, e.AgentID)
		if err != nil {
			return err
		}
		entry := kv.Entry{Key: e.Key, Value: e.Value, UpdatedMS: e.UpdatedMS, ExpiresMS: e.ExpiresMS}
		return clash(m.entry(ctx, keyRow{no: no}, kv.Space{Project: e.Project, Agent: e.AgentID}, entry), "key %s of agent %s", e.Key, e.AgentID)
	case r.Conversation != nil:
		c := r.Conversation
		entry := kv.Entry{Key: c.ID, Value: c.Body, ExpiresMS: kv.Never}
		err := m.entry(ctx, keyRow{project: stored(c.Project)}, kv.Space{Project: c.Project}, entry)
		if err != nil {
			return clash(err, "conversation %s of project %s", c.ID, c.Project)
		}
		_, err = m.tx.Exec(ctx, "INSERT INTO kv_count AS c (project, n) VALUES ($1, 1) ON CONFLICT (project) DO UPDATE SET n = c.n + 1", stored(c.Project))
		return err
	case r.Value != nil:
		return m.value(ctx, r.Value)
	case r.Event != nil:
		return m.event(ctx, r.Event)
	case r.Delivery != nil:
		return m.delivery(ctx, r.Delivery)
	}
	return nil
}

func (m *importer) agentNo(ctx context.Context, project, id string) (int64, error) {
	k := key{project, id}
	if no := m.nos[k]; no != 0 {
		return no, nil
	}
	var no int64
	err := m.tx.QueryRow(ctx, "SELECT no FROM agent WHERE project = $1 AND id = $2", stored(project), stored(id)).Scan(&no)
	if noRows(err) {
		return 0, fault.New(fault.Invalid, "there is no agent %q of project %q, which something imported belongs to", id, project)
	}
	m.nos[k] = no
	return no, err
}

func (m *importer) agent(ctx context.Context, a *export.Agent) error {
	packed, err := codec.EncodeAgent(&a.Agent)
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	no, err := m.s.insertAgent(ctx, m.tx, b, &a.Agent, packed, a.HeadRev, a.NextSeq, a.LastTurn, 0)
	if err == nil {
		m.nos[key{a.Project, a.ID}] = no
		err = m.tx.SendBatch(ctx, b).Close()
	}
	return clash(err, "agent %s (%s) of project %s", a.ID, a.Name, a.Project)
}

func (m *importer) entry(ctx context.Context, at keyRow, space kv.Space, e kv.Entry) error {
	_, err := m.tx.Exec(ctx, "INSERT INTO kv (agent_no, project, key, size, updated_ms, expires_ms, body) VALUES ($1, $2, $3, $4, $5, $6, $7)",
		at.no, at.project, stored(e.Key), e.Size(), e.UpdatedMS, e.ExpiresMS, m.s.sealer.Seal(e.Value, kvOwner(space, e.Key)))
	return err
}

func (m *importer) message(ctx context.Context, msg *export.Message) error {
	no, err := m.agentNo(ctx, msg.Project, msg.AgentID)
	if err != nil {
		return err
	}
	body, err := codec.EncodeMessage(&msg.Message)
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "a message cannot be stored")
	}
	m.messages.set(-1, no, &msg.Message, body)
	return nil
}

func (m *importer) endpoint(ctx context.Context, r *export.Record) error {
	e := r.Endpoint
	var project string
	err := m.tx.QueryRow(ctx, "SELECT project FROM endpoint WHERE id = $1", stored(e.ID)).Scan(&project)
	switch {
	case noRows(err):
		m.changed = true
		return m.s.writeEndpoint(ctx, m.tx, 0, *e)
	case err == nil && shown(project) != e.Project:
		return fault.New(fault.Conflict, "endpoint %s cannot be imported: another project has one of that id", e.ID)
	}
	return err
}

func (m *importer) value(ctx context.Context, v *export.Value) error {
	no, state, _, err := lockRecords(ctx, m.tx, v.Space())
	if err != nil {
		return err
	}
	// In the place of a deletion.
	done, err := m.tx.Exec(ctx, `INSERT INTO record AS r (space_no, id, rev, updated_ms, size, body) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (space_no, id) DO UPDATE SET rev = excluded.rev, updated_ms = excluded.updated_ms, size = excluded.size, body = excluded.body WHERE r.body IS NULL`,
		no, stored(string(v.ID)), v.Rev, v.UpdatedMS, v.Size(), m.s.sealer.Seal(v.Body, recordOwner(v.Space(), string(v.ID))))
	if err != nil {
		return err
	}
	if done.RowsAffected() == 0 {
		return export.ErrThere(v)
	}
	to := v.Place(state)
	_, err = m.tx.Exec(ctx, "UPDATE record_space SET rev = $2, n = $3, bytes = $4, whole = $5 WHERE no = $1", no, to.Rev, to.Count, to.Bytes, to.Whole)
	return err
}

func (m *importer) event(ctx context.Context, e *export.Event) (err error) {
	no := int64(0)
	if e.AgentID != "" {
		if no, err = m.agentNo(ctx, e.Project, e.AgentID); err != nil {
			return err
		}
	}
	_, err = m.tx.Exec(ctx, "INSERT INTO event (id, agent_no, agent_id, project, type, created_ms, body) VALUES ($1, $2, $3, $4, $5, $6, $7)",
		stored(e.ID), no, stored(e.AgentID), stored(e.Project), e.Type, e.CreatedMS, []byte(e.Body))
	return clash(err, "event %s", e.ID)
}

func (m *importer) delivery(ctx context.Context, d *export.Delivery) error {
	var event int64
	err := m.tx.QueryRow(ctx, "SELECT no FROM event WHERE id = $1 AND project = $2", stored(d.Event), stored(d.Project)).Scan(&event)
	if noRows(err) {
		err = fault.New(fault.Invalid, "delivery %d is of an event %q that is not there", d.ID, d.Event)
	}
	if err != nil {
		return err
	}
	to, err := m.endpointNo(ctx, d)
	if err != nil {
		return err
	}
	state, err := stateNumber(d.State)
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "a delivery's state is none")
	}
	first := d.FirstMS
	if first == 0 {
		first = d.Created
	}
	b := &pgx.Batch{}
	b.Queue(`INSERT INTO delivery (id, event_no, endpoint_no, project, state, attempt, retry, due_ms, fence, claimed, reason, created_ms, done_ms, first_ms, urgent, replay_of, replay_no)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, false, $10, $11, $12, $13, $14, $15, 0)`, d.ID, event, to, stored(d.Project), state, d.Attempt, d.Attempt > 0, d.DueMS, d.Fence,
		stored(string(d.Reason)), d.Created, d.DoneMS, first, d.Urgent, d.ReplayOf)
	for i, a := range d.Attempts {
		detail, err := webhook.EncodeDetail(a.Detail)
		if err != nil {
			return err
		}
		b.Queue(`INSERT INTO attempt (delivery_id, n, fence, started_ms, duration_ms, status, error_class, error, response, truncated, detail)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`, d.ID, a.N, int64(i-len(d.Attempts)), a.StartedMS, a.DurationMS, a.Status, stored(a.ErrorClass), stored(a.Error),
			a.Response, a.Truncated, detail)
	}
	return clash(m.tx.SendBatch(ctx, b).Close(), "delivery %d", d.ID)
}

// endpointNo returns the row of a delivery's endpoint. All deliveries of a deleted endpoint share
// one row.
func (m *importer) endpointNo(ctx context.Context, d *export.Delivery) (no int64, err error) {
	if !d.Gone {
		err = m.tx.QueryRow(ctx, "SELECT no FROM endpoint WHERE id = $1 AND project = $2", stored(d.Endpoint), stored(d.Project)).Scan(&no)
		if noRows(err) {
			err = fault.New(fault.Invalid, "delivery %d is for an endpoint %q that is not there", d.ID, d.Endpoint)
		}
		return no, err
	}
	err = m.tx.QueryRow(ctx, "SELECT no FROM endpoint WHERE id IS NULL AND gone_id = $1 AND project = $2 ORDER BY no LIMIT 1", stored(d.Endpoint), stored(d.Project)).Scan(&no)
	if noRows(err) {
		err = m.tx.QueryRow(ctx, "INSERT INTO endpoint (id, gone_id, project, body, secrets) VALUES (NULL, $1, $2, '', '') RETURNING no", stored(d.Endpoint), stored(d.Project)).Scan(&no)
	}
	return no, err
}
