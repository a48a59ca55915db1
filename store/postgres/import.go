package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/statements"
	"github.com/heardlog/heardlog/webhook"
)

var _ export.Target = (*Store)(nil)

// Mark implements export.Target.
func (s *Store) Mark(ctx context.Context) (mark []byte, err error) {
	err = s.db.Read(ctx, "read the mark", func(ctx context.Context) (err error) {
		mark, err = statements.Mark(pg.NewStatements(ctx, s.db.Pool))
		return err
	})
	return mark, err
}

// Unfinished reports whether an import is unfinished, so that its end may be missing.
func (s *Store) Unfinished(ctx context.Context) (bool, error) {
	mark, err := s.Mark(ctx)
	return mark != nil, err
}

// Clashes implements export.Target.
func (s *Store) Clashes(ctx context.Context, batch []export.Record, each func(export.Record, string)) error {
	return s.snapshot(ctx, "look for what is there already", func(tx pgx.Tx) error {
		return statements.Clashes(pg.NewStatements(ctx, tx), batch, each)
	})
}

// Reserve implements export.Target. It takes n IDs out of the sequence of deliveries.
func (s *Store) Reserve(ctx context.Context, n int64) (last int64, err error) {
	err = s.db.Transact(ctx, "keep ids of deliveries", func(ctx context.Context, tx pgx.Tx) error {
		// The lock serializes imports.
		if _, err := tx.Exec(ctx, "SELECT 1 FROM counter WHERE key = 'endpoints' FOR UPDATE"); err != nil {
			return err
		}
		// A server draws the number of a delivery and stores the delivery in one statement, and no
		// statement is between the two here.
		if _, err := tx.Exec(ctx, "LOCK TABLE delivery IN SHARE ROW EXCLUSIVE MODE"); err != nil && !pg.Unsupported(err) {
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
	changed := false
	err := s.db.Transact(ctx, "import", func(ctx context.Context, tx pgx.Tx) error {
		m := &incoming{ctx: ctx, s: s, tx: tx}
		if err := statements.Import(pg.NewStatements(ctx, tx), s.sealer, m, batch, had, mark); err != nil {
			return err
		}
		changed = m.changed
		return m.writeMessages()
	})
	if err != nil {
		return err
	}
	s.wake()
	if changed {
		return s.db.Failed(ctx, s.loadEndpoints(ctx, s.db.Pool), "read endpoints")
	}
	return nil
}

// incoming is the transaction of an import as a statements.Store.
type incoming struct {
	ctx      context.Context
	s        *Store
	tx       pgx.Tx
	messages rows // written together
	changed  bool // whether endpoints changed
}

// InsertAgent implements statements.Store.
func (m *incoming) InsertAgent(h *memory.Head, private []byte) (int64, error) {
	b := &pgx.Batch{}
	no, err := m.s.insertAgent(m.ctx, m.tx, b, h, private, 0)
	if err != nil {
		return 0, err
	}
	return no, m.tx.SendBatch(m.ctx, b).Close()
}

// InsertMessage implements statements.Store. writeMessages writes the message.
func (m *incoming) InsertMessage(no int64, msg *memory.Message, body string) error {
	m.messages.set(-1, no, msg, body)
	return nil
}

// writeMessages writes the messages. Servers that have read their agents must read them again.
func (m *incoming) writeMessages() error {
	r := &m.messages
	if len(r.nos) == 0 {
		return nil
	}
	st := &pg.Parts{}
	st.With("head", `UPDATE agent_head h SET ver = h.ver + 1, written = h.written + u.n
		FROM (SELECT t.no, sum(octet_length(t.body)) AS n FROM unnest(?::bigint[], ?::text[]) t (no, body) GROUP BY t.no) u
		WHERE h.agent_no = u.no AND h.agent_no IN (SELECT agent_no FROM agent_head WHERE agent_no = ANY(?::bigint[]) ORDER BY agent_no FOR UPDATE) RETURNING h.agent_no`, r.nos, r.bodies, r.nos)
	st.With("used", `INSERT INTO project_use (project, bytes) SELECT a.project, sum(octet_length(t.body)) FROM unnest(?::bigint[], ?::text[]) t (no, body)
		JOIN agent a ON a.no = t.no WHERE a.status IN (4, 6) GROUP BY a.project`, r.nos, r.bodies)
	r.insert(st)
	b := &pgx.Batch{}
	st.Queue(b)
	err := m.tx.SendBatch(m.ctx, b).Close()
	if m.Taken(err) {
		return export.ErrTaken(err, "a message of this part of the export")
	}
	return err
}

// InsertEndpoint implements statements.Store.
func (m *incoming) InsertEndpoint(e *webhook.Endpoint) error {
	if !m.changed { // lock the counter first, as every change of endpoints does
		if _, err := m.tx.Exec(m.ctx, "UPDATE counter SET n = n + 1 WHERE key = 'endpoints'"); err != nil {
			return err
		}
		m.changed = true
	}
	return m.s.writeEndpoint(m.ctx, m.tx, 0, *e)
}

// InsertDelivery implements statements.Store.
func (m *incoming) InsertDelivery(d *export.Delivery, eventNo, endpointNo, state int64) error {
	first := d.FirstMS
	if first == 0 {
		first = d.Created
	}
	_, err := m.tx.Exec(m.ctx, `INSERT INTO delivery (id, event_no, endpoint_no, project, state, attempt, retry, due_ms, fence, claimed, reason, created_ms, done_ms, first_ms, urgent, replay_of, replay_no)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, false, $10, $11, $12, $13, $14, $15, 0)`, d.ID, eventNo, endpointNo, pg.Stored(d.Project), state, d.Attempt, d.Attempt > 0, d.DueMS, d.Fence,
		pg.Stored(string(d.Reason)), d.Created, d.DoneMS, first, d.Urgent, d.ReplayOf)
	return err
}

// CountKey implements statements.Store. Working memories are not counted.
func (m *incoming) CountKey(agentNo int64, project string, size int64) error {
	if agentNo != 0 {
		return nil
	}
	b := &pgx.Batch{}
	b.Queue("INSERT INTO kv_count AS c (project, n, size) VALUES ($1, 1, $2) ON CONFLICT (project) DO UPDATE SET n = c.n + 1, size = c.size + $2", pg.Stored(project), size)
	b.Queue(addKeys, pg.Stored(project), size)
	return m.tx.SendBatch(m.ctx, b).Close()
}

// LockSpace implements statements.Store.
func (m *incoming) LockSpace(at record.Space) (no int64, state record.State, err error) {
	no, state, _, err = lockRecords(m.ctx, m.tx, at)
	return no, state, err
}

// Inserted implements statements.Store.
func (m *incoming) Inserted(spaceNo int64, v *export.Value) error {
	if _, err := m.tx.Exec(m.ctx, addBytes, pg.Stored(v.Project), v.Size()); err != nil {
		return err
	}
	words := m.s.words.Of(v.Space(), v.Body)
	if words == nil {
		return nil
	}
	_, err := m.tx.Exec(m.ctx, "UPDATE record SET words = $3 WHERE space_no = $1 AND id = $2", spaceNo, pg.Stored(string(v.ID)), words)
	return err
}

// Taken implements statements.Store.
func (*incoming) Taken(err error) bool { return pg.Violated(err) != "" }
