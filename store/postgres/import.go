package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/codec"
	"github.com/heardlog/heardlog/store/encryption"
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
		m := &incoming{ctx: ctx, s: s, tx: tx, heads: map[int64]*incomingHead{}, keys: map[encryption.Of]encryption.Key{}}
		err := statements.Import(pg.NewStatements(ctx, tx), m, batch, had, mark)
		changed = m.changed
		return err
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

// incoming is the transaction of an import as a statements.Store. Flush copies the rows of the
// large tables.
type incoming struct {
	ctx     context.Context
	s       *Store
	tx      pgx.Tx
	rows    pg.Copy
	heads   map[int64]*incomingHead // of agents that get messages or are new, by number
	keys    map[encryption.Of]encryption.Key
	numbers map[string][]int64 // drawn from the sequences of tables, and free
	changed bool               // whether endpoints changed
}

// incomingHead is what a batch adds to an agent.
type incomingHead struct {
	head    *memory.Head // of a new agent
	written int64
}

// number draws the number of a row.
func (m *incoming) number(table string) (int64, error) {
	if m.numbers == nil {
		m.numbers = map[string][]int64{}
	}
	free := m.numbers[table]
	if len(free) == 0 {
		var err error
		free, err = pg.Collect(m.ctx, m.tx, pgx.RowTo[int64], "SELECT nextval(pg_get_serial_sequence($1, 'no')) FROM generate_series(1, 100)", table)
		if err != nil {
			return 0, err
		}
	}
	m.numbers[table] = free[1:]
	return free[0], nil
}

// InsertAgent implements statements.Store.
func (m *incoming) InsertAgent(h *memory.Head, private []byte) (int64, error) {
	no, err := m.number("agent")
	if err != nil {
		return 0, err
	}
	a := h.Agent
	key, err := m.Key(statements.AgentKey(a))
	if err != nil {
		return 0, err
	}
	private = key.Seal(private, statements.AgentOwner(a.Project, a.ID))
	m.heads[no] = &incomingHead{head: h}
	m.rows.Add("agent", append([]string{"no"}, agentFields...), append([]any{no}, agentValues(a, private)...)...)
	if a.Status.Ended() {
		m.rows.Add("report_due", []string{"project", "agent_no", "id", "rev"}, a.Project, no, a.ID, h.Rev)
	}
	there := map[string]bool{}
	for shared, keys := range [][]string{a.Settings.Call.Keys, a.Settings.Call.Shared} {
		for _, k := range keys {
			if !there[k] {
				m.rows.Add("agent_key", []string{"project", "key", "agent_no", "shared", "live"}, a.Project, k, no, shared == 1, !a.Status.Ended())
			}
			there[k] = true
		}
	}
	for _, tag := range h.Tags() {
		m.rows.Add("agent_tag", []string{"project", "name", "value", "start_ms", "agent_no"}, a.Project, tag.Name, tag.Value, a.StartMS, no)
	}
	return no, nil
}

// Key implements statements.Store.
func (m *incoming) Key(of encryption.Of) (k encryption.Key, err error) {
	k, ok := m.keys[of]
	if !ok {
		if k, err = m.s.key(m.ctx, m.tx, of); err == nil {
			m.keys[of] = k
		}
	}
	return k, err
}

// InsertMessage implements statements.Store.
func (m *incoming) InsertMessage(no int64, key encryption.Key, msg *memory.Message, body string) error {
	h := m.heads[no]
	if h == nil {
		h = &incomingHead{}
		m.heads[no] = h
	}
	h.written += int64(len(body))
	m.rows.Add("message", []string{"agent_no", "seq", "rev", "turn", "shown", "client_id", "packed"}, no, msg.Seq, msg.Rev, msg.TurnID, msg.InHistory(), clientID(msg.ID), statements.MessageBody(key, no, msg.Seq, codec.Pack(body)))
	return nil
}

// Insert implements statements.Store.
func (m *incoming) Insert(table string, columns []string, values ...any) (no int64, err error) {
	if table == "event" {
		if no, err = m.number(table); err != nil {
			return 0, err
		}
		columns, values = append([]string{"no"}, columns...), append([]any{no}, values...)
	}
	m.rows.Add(table, columns, values...)
	return no, nil
}

// Flush implements statements.Store. Servers that have read the agents of the messages must read
// them again.
func (m *incoming) Flush() error {
	var nos, written []int64
	use := map[string]*memory.Usage{}
	ended := map[string]*[memory.Statuses]int64{}
	for no, h := range m.heads {
		if h.head == nil {
			nos, written = append(nos, no), append(written, h.written)
			continue
		}
		m.rows.Add("agent_head", []string{"agent_no", "ver", "rev", "next_seq", "last_turn", "written", "tally"}, no, int64(1), h.head.Rev, h.head.NextSeq, h.head.LastTurn, h.written, h.head.Tally.Encode())
		if a := h.head.Agent; a.Status.Ended() {
			if use[a.Project] == nil {
				use[a.Project], ended[a.Project] = &memory.Usage{}, &[memory.Statuses]int64{}
			}
			ended[a.Project][a.Status]++
			use[a.Project].Messages += h.head.NextSeq - 1
			use[a.Project].Bytes += h.written
		}
	}
	for project, u := range use {
		n := ended[project]
		m.rows.Add("project_use", []string{"project", "stopped", "failed", "messages", "bytes"}, project, n[memory.Stopped], n[memory.Failed], u.Messages, u.Bytes)
	}
	table, err := m.rows.Flush(m.ctx, m.tx)
	if err != nil {
		if m.Taken(err) {
			err = export.ErrTaken(err, "a row of table "+table+" for this part of the export")
		}
		return err
	}
	if len(nos) == 0 {
		return nil
	}
	st := &pg.Parts{}
	st.With("head", `UPDATE agent_head h SET ver = h.ver + 1, written = h.written + u.n FROM unnest(?::bigint[], ?::bigint[]) u (no, n)
		WHERE h.agent_no = u.no AND h.agent_no IN (SELECT agent_no FROM agent_head WHERE agent_no = ANY(?::bigint[]) ORDER BY agent_no FOR UPDATE) RETURNING h.agent_no`, nos, written, nos)
	st.With("used", `INSERT INTO project_use (project, bytes) SELECT a.project, sum(u.n) FROM unnest(?::bigint[], ?::bigint[]) u (no, n)
		JOIN agent a ON a.no = u.no WHERE a.status IN (4, 6) GROUP BY a.project`, nos, written)
	st.End("SELECT 1")
	b := &pgx.Batch{}
	st.Queue(b)
	return m.tx.SendBatch(m.ctx, b).Close()
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
	m.rows.Add("delivery", []string{"id", "event_no", "endpoint_no", "project", "state", "attempt", "retry", "due_ms", "fence", "claimed", "reason", "created_ms", "done_ms", "first_ms", "urgent", "replay_of", "replay_no"},
		d.ID, eventNo, endpointNo, d.Project, state, int64(d.Attempt), d.Attempt > 0, d.DueMS, d.Fence, false, string(d.Reason), d.Created, d.DoneMS, first, d.Urgent, d.ReplayOf, int64(0))
	return nil
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
