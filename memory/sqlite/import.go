package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/codec"
	"github.com/heardlog/heardlog/memory/export"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/sqlite/dbfile"
	"github.com/heardlog/heardlog/webhook"
)

// importMark is the key in table meta of an unfinished import.
const importMark = "import"

// Importer puts records into a database file that no other process uses.
type Importer struct {
	s *Store // of which only the writer is open
	t *tx    // of the batch
	// agent and no are the last agent that was looked up.
	agent memory.Ref
	no    int64
}

// boundLog makes SQLite move the log of an import into the file when it has 16 MiB. Without it the
// log would grow as large as the import.
const boundLog = "PRAGMA wal_autocheckpoint = 4000; PRAGMA journal_size_limit = 16777216"

var _ export.Target = (*Importer)(nil)

// OpenImporter opens the file, creates or migrates its schema, and takes the lock that servers
// take. It fails if another process has the file.
func OpenImporter(o Options) (*Importer, error) {
	s, err := openStore(o.withDefaults())
	if err != nil {
		return nil, err
	}
	if err := s.db.Writer().Script(boundLog); err != nil {
		return nil, errors.Join(dbfile.Classify(err, "open "+o.Path), s.db.Release())
	}
	return &Importer{s: s}, nil
}

// Close releases the file.
func (m *Importer) Close() error { return m.s.db.Release() }

// Mark implements export.Target.
func (m *Importer) Mark(context.Context) ([]byte, error) {
	row, err := m.s.db.Writer().First("SELECT value FROM meta WHERE key = ?", importMark)
	if err != nil || row == nil {
		return nil, dbfile.Classify(err, "read the mark")
	}
	return bytes.Clone(row.Blob(0)), nil
}

// Reserve implements export.Target. It returns the highest ID that a delivery ever had.
func (m *Importer) Reserve(context.Context, int64) (int64, error) {
	n, err := m.s.db.Writer().Number("SELECT max(coalesce((SELECT max(id) FROM delivery), 0), coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'delivery'), 0))")
	return n, dbfile.Classify(err, "look for deliveries")
}

// Import implements export.Target.
func (m *Importer) Import(ctx context.Context, batch []export.Record, had, mark []byte) error {
	if ctx.Err() != nil {
		return dbfile.Ended(ctx)
	}
	m.t = &tx{m.s.db.OpenTx(), m.s}
	err := m.t.Conn.Transaction(func() error {
		if err := m.move(had, mark); err != nil {
			return err
		}
		for i := range batch {
			if err := m.record(&batch[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		m.agent = memory.Ref{}
	}
	return dbfile.Classify(err, "import")
}

// move replaces a mark by another.
func (m *Importer) move(had, mark []byte) error {
	is, err := m.t.Conn.First("SELECT value FROM meta WHERE key = ?", importMark)
	switch {
	case err != nil:
		return err
	case (is != nil) != (had != nil), is != nil && !bytes.Equal(is.Blob(0), had):
		return export.ErrMoved()
	case mark == nil:
		_, err = m.t.Exec("DELETE FROM meta WHERE key = ?", importMark)
	default:
		_, err = m.t.Exec("INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", importMark, mark)
	}
	return err
}

// Clashes implements export.Target.
func (m *Importer) Clashes(ctx context.Context, batch []export.Record, each func(export.Record, string)) error {
	for _, r := range batch {
		if ctx.Err() != nil {
			return dbfile.Ended(ctx)
		}
		why, err := m.against(&r)
		if err != nil {
			return dbfile.Classify(err, "look for what is there already")
		}
		if why != "" {
			each(r, why)
		}
	}
	return nil
}

// against returns why a record cannot be imported; "" if it can.
func (m *Importer) against(r *export.Record) (string, error) {
	w := m.s.db.Writer()
	first := func(why, sql string, args ...any) (string, error) {
		row, err := w.First(sql, args...)
		if err != nil || row == nil {
			return "", err
		}
		return why, nil
	}
	switch {
	case r.Endpoint != nil:
		return first(export.OtherProject, "SELECT 1 FROM endpoint WHERE id = ? AND project <> ?", r.Endpoint.ID, r.Endpoint.Project)
	case r.Conversation != nil:
		return first(export.IsThere, "SELECT 1 FROM kv WHERE agent_no = 0 AND project = ? AND key = ?", r.Conversation.Project, r.Conversation.ID)
	case r.Value != nil:
		at := r.Value.Space()
		return first(export.IsThere, "SELECT 1 FROM record_space s JOIN record r ON r.space_no = s.no WHERE s.project = ? AND s.name = ? AND s.user_id = ? AND r.id = ? AND r.body IS NOT NULL",
			at.Project, at.Name, at.User, string(r.Value.ID))
	case r.Event != nil:
		return first(export.IsThere, "SELECT 1 FROM event WHERE id = ?", r.Event.ID)
	case r.Agent == nil:
		return "", nil
	}
	a := r.Agent
	if why, err := first(export.IsThere, "SELECT 1 FROM agent WHERE project = ? AND id = ?", a.Project, a.ID); err != nil || why != "" {
		return why, err
	}
	if a.JoinKey != "" {
		if why, err := first(export.JoinKeyTaken, "SELECT 1 FROM agent WHERE project = ? AND join_key = ?", a.Project, a.JoinKey); err != nil || why != "" {
			return why, err
		}
	}
	if a.Status.Ended() {
		return "", nil
	}
	if a.Name != "" {
		if why, err := first(export.NameTaken, "SELECT 1 FROM agent WHERE project = ? AND name = ? AND status NOT IN (4, 6)", a.Project, a.Name); err != nil || why != "" {
			return why, err
		}
	}
	err := keysAreFree(w, &a.Agent)
	if fault.Is(err, fault.Conflict) {
		return export.CallKeyTaken, nil
	}
	return "", err
}

func (m *Importer) record(r *export.Record) error {
	switch {
	case r.Key != nil:
		name := keyOwner(r.Key.Name)
		_, err := m.t.Exec("INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING", name, m.s.sealer.Seal(r.Key.Value, name))
		return err
	case r.Endpoint != nil:
		return m.endpoint(r.Endpoint)
	case r.Agent != nil:
		return m.newAgent(r.Agent)
	case r.Message != nil:
		return m.message(r.Message)
	case r.Item != nil:
		no, err := m.agentNo(r.Item.Project, r.Item.AgentID)
		if err != nil {
			return err
		}
		row := &r.Item.Row
		_, err = m.t.Exec(insertItem, itemArgs(no, r.Item.Seq, row)...)
		return clash(err, "item %s of project %s", row.ID, row.Project)
	case r.Working != nil:
		e := r.Working
		entry := kv.Entry{Key: e.Key, Value: e.Value, UpdatedMS: e.UpdatedMS, ExpiresMS: e.ExpiresMS}
		return clash(m.entry(kv.Space{Project: e.Project, Agent: e.AgentID}, entry), "key %s of agent %s", e.Key, e.AgentID)
	case r.Conversation != nil:
		c := r.Conversation
		return clash(m.entry(kv.Space{Project: c.Project}, kv.Entry{Key: c.ID, Value: c.Body, ExpiresMS: kv.Never}), "conversation %s of project %s", c.ID, c.Project)
	case r.Value != nil:
		return m.value(r.Value)
	case r.Event != nil:
		return m.event(r.Event)
	case r.Delivery != nil:
		return m.delivery(r.Delivery)
	}
	return nil
}

// clash returns what the store already holds in the place of a record.
func clash(err error, format string, args ...any) error {
	if err = dbfile.Classify(err, "import"); fault.Is(err, fault.Conflict) {
		return fault.Wrap(fault.Conflict, err, fmt.Sprintf(format, args...)+" cannot be imported: the store holds something in its place already")
	}
	return err
}

func (m *Importer) agentNo(project, id string) (int64, error) {
	k := memory.Ref{Project: project, ID: id}
	if m.agent != k {
		no, err := m.t.Conn.Number("SELECT no FROM agent WHERE project = ? AND id = ?", project, id)
		if err != nil {
			return 0, err
		}
		if no == 0 {
			return 0, fault.New(fault.Invalid, "there is no agent %q of project %q, which something imported belongs to", id, project)
		}
		m.agent, m.no = k, no
	}
	return m.no, nil
}

func (m *Importer) newAgent(a *export.Agent) error {
	packed, err := codec.EncodeAgent(&a.Agent)
	if err != nil {
		return err
	}
	if !a.Status.Ended() {
		if err := keysAreFree(m.t.Conn, &a.Agent); err != nil {
			return err
		}
	}
	h := memory.Head{Agent: a.Agent, Rev: a.HeadRev, NextSeq: a.NextSeq, LastTurn: a.LastTurn}
	m.agent = memory.Ref{Project: a.Project, ID: a.ID}
	m.no, err = m.t.insertAgent(&h, m.s.sealer.Seal(packed, agentOwner(a.Project, a.ID)), 0)
	return clash(err, "agent %s (%s) of project %s", a.ID, a.Name, a.Project)
}

func (m *Importer) message(msg *export.Message) error {
	no, err := m.agentNo(msg.Project, msg.AgentID)
	if err != nil {
		return err
	}
	body, err := codec.EncodeMessage(&msg.Message)
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "a message cannot be stored")
	}
	if _, err = m.t.Exec("UPDATE agent SET written = written + ? WHERE no = ?", int64(len(body)), no); err != nil {
		return err
	}
	return clash(m.t.insertMessage(no, &msg.Message, body), "message %d of agent %s", msg.Seq, msg.AgentID)
}

func (m *Importer) endpoint(e *webhook.Endpoint) error {
	row, err := m.t.Conn.First("SELECT project FROM endpoint WHERE id = ?", e.ID)
	if err != nil {
		return err
	}
	if row != nil {
		if row.Text(0) != e.Project {
			return fault.New(fault.Conflict, "endpoint %s cannot be imported: another project has one of that id", e.ID)
		}
		return nil
	}
	no, err := m.t.insertEndpointRow(e)
	if err != nil {
		return err
	}
	return m.t.writeEndpoint(&endpoint{Endpoint: e, no: no})
}

func (m *Importer) entry(space kv.Space, e kv.Entry) error {
	at := keyRow{project: space.Project}
	if space.Agent != "" {
		no, err := m.agentNo(space.Project, space.Agent)
		if err != nil {
			return err
		}
		at = keyRow{no: no}
	}
	if err := m.t.insertKey(at, &e, m.s.sealer.Seal(e.Value, kvOwner(space, e.Key))); err != nil {
		return err
	}
	return m.t.countKeys(at, 1, e.Size())
}

func (m *Importer) value(v *export.Value) error {
	w := m.t.Conn
	space, err := readSpace(w, v.Space())
	if err != nil {
		return err
	}
	to := v.Place(space.state)
	_, err = m.t.Exec(`INSERT INTO record_space (project, name, user_id, rev, n, bytes, whole) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (project, name, user_id) DO UPDATE SET rev = excluded.rev, n = excluded.n, bytes = excluded.bytes, whole = excluded.whole`,
		space.at.Project, space.at.Name, space.at.User, to.Rev, to.Count, to.Bytes, to.Whole)
	if err == nil && space.no == 0 {
		space, err = readSpace(w, v.Space())
	}
	if err != nil {
		return err
	}
	// In the place of a deletion.
	n, err := m.t.Exec(`INSERT INTO record (space_no, id, rev, updated_ms, size, body) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (space_no, id) DO UPDATE SET rev = excluded.rev, updated_ms = excluded.updated_ms, size = excluded.size, body = excluded.body WHERE body IS NULL`,
		space.no, string(v.ID), v.Rev, v.UpdatedMS, v.Size(), m.s.sealer.Seal(v.Body, recordOwner(space.at, string(v.ID))))
	if err == nil && n != 1 {
		err = export.ErrThere(v)
	}
	return err
}

func (m *Importer) event(e *export.Event) (err error) {
	no := int64(0)
	if e.AgentID != "" {
		if no, err = m.agentNo(e.Project, e.AgentID); err != nil {
			return err
		}
	}
	_, err = m.t.insertEventRow(no, webhook.Event{ID: e.ID, AgentID: e.AgentID, Project: e.Project, Type: e.Type, CreatedMS: e.CreatedMS, Body: []byte(e.Body)})
	return clash(err, "event %s", e.ID)
}

func (m *Importer) delivery(d *export.Delivery) error {
	event, err := m.t.Conn.Number("SELECT no FROM event WHERE id = ? AND project = ?", d.Event, d.Project)
	if err == nil && event == 0 {
		err = fault.New(fault.Invalid, "delivery %d is of an event %q that is not there", d.ID, d.Event)
	}
	if err != nil {
		return err
	}
	to, err := m.endpointNo(d)
	if err != nil {
		return err
	}
	state, err := stateNumber(d.State)
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "a delivery's state is none")
	}
	_, err = m.t.Exec(`INSERT INTO delivery (id, event_no, endpoint_no, state, attempt, due_ms, fence, reason, created_ms, done_ms, first_ms, urgent, replay_of)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, d.ID, event, to, state, int64(d.Attempt), d.DueMS, d.Fence, string(d.Reason), d.Created, d.DoneMS,
		d.FirstMS, d.Urgent, d.ReplayOf)
	if err != nil {
		return clash(err, "delivery %d", d.ID)
	}
	for i := range d.Attempts {
		if err := m.t.insertAttempt(d.ID, int64(i-len(d.Attempts)), &d.Attempts[i]); err != nil {
			return clash(err, "an attempt of delivery %d", d.ID)
		}
	}
	return nil
}

// endpointNo returns the row of a delivery's endpoint. All deliveries of a deleted endpoint share
// one row.
func (m *Importer) endpointNo(d *export.Delivery) (int64, error) {
	if !d.Gone {
		no, err := m.t.Conn.Number("SELECT no FROM endpoint WHERE id = ? AND project = ?", d.Endpoint, d.Project)
		if err == nil && no == 0 {
			err = fault.New(fault.Invalid, "delivery %d is for an endpoint %q that is not there", d.ID, d.Endpoint)
		}
		return no, err
	}
	no, err := m.t.Conn.Number("SELECT no FROM endpoint WHERE id IS NULL AND gone_id = ? AND project = ?", d.Endpoint, d.Project)
	if err != nil || no != 0 {
		return no, err
	}
	return m.t.Insert("INSERT INTO endpoint (id, gone_id, project, body, secrets) VALUES (NULL, ?, ?, '', x'')", d.Endpoint, d.Project)
}

// Unfinished reports whether an import is unfinished, so that its end may be missing.
func (s *Store) Unfinished(ctx context.Context) (found bool, err error) {
	err = s.db.Read(ctx, "read the mark", func(c *dbfile.Conn) (err error) { found, err = unfinished(c); return err })
	return found, err
}

// Unfinished reports whether an import is unfinished.
func (r *Reader) Unfinished(context.Context) (bool, error) { return unfinished(r.c) }

func unfinished(c *dbfile.Conn) (bool, error) {
	n, err := c.Number("SELECT count(*) FROM meta WHERE key = ?", importMark)
	return n > 0, dbfile.Classify(err, "read the mark")
}
