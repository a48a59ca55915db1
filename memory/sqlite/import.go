package sqlite

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/codec"
	"github.com/heardlog/heardlog/memory/export"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/webhook"
)

// importMark is the key in table meta of an unfinished import.
const importMark = "import"

// Importer puts records into a database file that no other process uses.
type Importer struct {
	s *Store // of which only the writer is open
	// agent and no are the last agent that was looked up.
	agent memory.Ref
	no    int64
	// log is the file of the write-ahead log. It is moved into the database when it has next bytes.
	log  string
	next int64
}

// importCheckpoint is the size in bytes at which the log of an import is moved into the file.
// Without it the log would grow as large as the import.
const importCheckpoint = 16 << 20

var _ export.Target = (*Importer)(nil)

// OpenImporter opens the file, creates or migrates its schema, and takes the lock that servers
// take. It fails if another process has the file.
func OpenImporter(o Options) (*Importer, error) {
	o = o.withDefaults()
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the store's path cannot be used")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the store's folder cannot be made")
	}
	s := newStore(o)
	if s.lock, err = lockFile(path); err == nil {
		var f *os.File
		if f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err == nil {
			err = errors.Join(f.Close(), s.openWriter(path, o))
		}
	}
	if err != nil {
		return nil, errors.Join(classify(err, "open "+path), s.release())
	}
	return &Importer{s: s, log: path + "-wal", next: importCheckpoint}, nil
}

// Close releases the file.
func (m *Importer) Close() error { return m.s.release() }

// Mark implements export.Target.
func (m *Importer) Mark(context.Context) ([]byte, error) {
	row, err := m.s.writer.first("SELECT value FROM meta WHERE key = ?", importMark)
	if err != nil || row == nil {
		return nil, classify(err, "read the mark")
	}
	return bytes.Clone(blob(row[0])), nil
}

// Reserve implements export.Target. It returns the highest ID that a delivery ever had.
func (m *Importer) Reserve(context.Context, int64) (int64, error) {
	n, err := m.s.writer.number("SELECT max(coalesce((SELECT max(id) FROM delivery), 0), coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'delivery'), 0))")
	return n, classify(err, "look for deliveries")
}

// Import implements export.Target.
func (m *Importer) Import(ctx context.Context, batch []export.Record, had, mark []byte) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	w := m.s.writer.conn
	if _, err := w.run("BEGIN IMMEDIATE"); err != nil {
		return classify(err, "import")
	}
	err := m.move(had, mark)
	if err == nil {
		err = m.write(batch)
	}
	if err == nil {
		_, err = w.run("COMMIT")
	}
	if err != nil {
		_, _ = w.run("ROLLBACK")
		m.agent = memory.Ref{}
		return classify(err, "import")
	}
	m.checkpoint()
	return nil
}

// checkpoint moves the log into the file when it has grown. The data is safe in the log, so after a
// failure, or if a reader needs the log, it waits until the log has grown as much again.
func (m *Importer) checkpoint() {
	st, err := os.Stat(m.log)
	if err != nil || st.Size() < m.next {
		return
	}
	w := m.s.writer.conn
	busy := int64(1)
	err = w.script("PRAGMA busy_timeout(0)") // waits for no reader
	if err == nil {
		busy, err = w.number("PRAGMA wal_checkpoint(TRUNCATE)")
	}
	if m.next = importCheckpoint; err != nil || busy != 0 {
		m.next = st.Size() + importCheckpoint
	}
	_ = w.script("PRAGMA busy_timeout(5000)")
}

// tx returns the transaction that Import has begun.
func (m *Importer) tx() *tx { return &tx{s: m.s, w: m.s.writer.conn, open: true} }

// move replaces a mark by another.
func (m *Importer) move(had, mark []byte) error {
	is, err := m.s.writer.first("SELECT value FROM meta WHERE key = ?", importMark)
	switch {
	case err != nil:
		return err
	case (is != nil) != (had != nil), is != nil && !bytes.Equal(blob(is[0]), had):
		return export.ErrMoved()
	case mark == nil:
		_, err = m.s.writer.run("DELETE FROM meta WHERE key = ?", importMark)
	default:
		_, err = m.s.writer.run("INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", importMark, mark)
	}
	return err
}

// Clashes implements export.Target.
func (m *Importer) Clashes(ctx context.Context, batch []export.Record, each func(export.Record, string)) error {
	for _, r := range batch {
		if ctx.Err() != nil {
			return ended(ctx)
		}
		why, err := m.against(&r)
		if err != nil {
			return classify(err, "look for what is there already")
		}
		if why != "" {
			each(r, why)
		}
	}
	return nil
}

// against returns why a record cannot be imported; "" if it can.
func (m *Importer) against(r *export.Record) (string, error) {
	w := m.s.writer.conn
	first := func(why, sql string, args ...driver.Value) (string, error) {
		row, err := w.first(sql, args...)
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

func (m *Importer) write(batch []export.Record) error {
	for i := range batch {
		if err := m.record(&batch[i]); err != nil {
			return err
		}
	}
	return nil
}

func (m *Importer) record(r *export.Record) error {
	switch {
	case r.Key != nil:
		name := keyOwner(r.Key.Name)
		_, err := m.s.writer.run("INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING", name, m.s.sealer.Seal(r.Key.Value, name))
		return err
	case r.Endpoint != nil:
		return m.endpoint(r)
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
		_, err = m.s.writer.run("INSERT INTO item (project, id, agent_no, seq, user_id, session_id, task_id, agent_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
			row.Project, row.ID, no, r.Item.Seq, row.UserID, row.SessionID, row.TaskID, row.AgentID)
		return clash(err, "item %s of project %s", row.ID, row.Project)
	case r.Working != nil:
		return m.working(r.Working)
	case r.Conversation != nil:
		return m.conversation(r.Conversation)
	case r.Event != nil:
		return m.event(r.Event)
	case r.Delivery != nil:
		return m.delivery(r.Delivery)
	}
	return nil
}

// clash returns what the store already holds in the place of a record.
func clash(err error, format string, args ...any) error {
	if err = classify(err, "import"); fault.Is(err, fault.Conflict) {
		return fault.Wrap(fault.Conflict, err, fmt.Sprintf(format, args...)+" cannot be imported: the store holds something in its place already")
	}
	return err
}

func (m *Importer) agentNo(project, id string) (int64, error) {
	k := memory.Ref{Project: project, ID: id}
	if m.agent != k {
		no, err := m.s.writer.number("SELECT no FROM agent WHERE project = ? AND id = ?", project, id)
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
	w := m.s.writer.conn
	if !a.Status.Ended() {
		if err := keysAreFree(w, &a.Agent); err != nil {
			return err
		}
	}
	res, err := w.run(`INSERT INTO agent (project, id, name, channel, status, start_ms, stop_ms, message, rev, join_key, join_hash, head_rev, last_turn, next_seq)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, a.Project, a.ID, a.Name, a.Settings.Channel, int64(a.Status), a.StartMS, a.StopMS,
		a.Message, a.Rev, a.JoinKey, a.JoinHash, a.HeadRev, a.LastTurn, a.NextSeq)
	if err != nil {
		return clash(err, "agent %s (%s) of project %s", a.ID, a.Name, a.Project)
	}
	no, err := res.LastInsertId()
	if err != nil {
		return err
	}
	if _, err := w.run("INSERT INTO agent_settings (agent_no, body) VALUES (?, ?)", no, m.s.sealer.Seal(packed, agentOwner(a.Project, a.ID))); err != nil {
		return err
	}
	m.agent, m.no = memory.Ref{Project: a.Project, ID: a.ID}, no
	return m.tx().insertKeys(no, &a.Agent)
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
	_, err = m.s.writer.run(insertMessage, no, msg.Seq, msg.Rev, msg.TurnID, boolean(msg.InHistory()), clientID(msg.ID), body)
	return clash(err, "message %d of agent %s", msg.Seq, msg.AgentID)
}

func (m *Importer) endpoint(r *export.Record) error {
	e, w := r.Endpoint, m.s.writer.conn
	row, err := w.first("SELECT project FROM endpoint WHERE id = ?", e.ID)
	if err != nil {
		return err
	}
	if row != nil {
		if text(row[0]) != e.Project {
			return fault.New(fault.Conflict, "endpoint %s cannot be imported: another project has one of that id", e.ID)
		}
		return nil
	}
	res, err := w.run("INSERT INTO endpoint (id, project, body, secrets) VALUES (?, ?, '', x'')", e.ID, e.Project)
	if err != nil {
		return err
	}
	no, err := res.LastInsertId()
	if err != nil {
		return err
	}
	return m.tx().writeEndpoint(&endpoint{Endpoint: e, no: no})
}

func (m *Importer) working(e *export.Working) error {
	no, err := m.agentNo(e.Project, e.AgentID)
	if err != nil {
		return err
	}
	entry := kv.Entry{Key: e.Key, Value: e.Value, UpdatedMS: e.UpdatedMS, ExpiresMS: e.ExpiresMS}
	return clash(m.entry(keyRow{no: no}, kv.Space{Project: e.Project, Agent: e.AgentID}, entry), "key %s of agent %s", e.Key, e.AgentID)
}

func (m *Importer) conversation(c *export.Conversation) error {
	entry := kv.Entry{Key: c.ID, Value: c.Body, ExpiresMS: kv.Never}
	return clash(m.entry(keyRow{project: c.Project}, kv.Space{Project: c.Project}, entry), "conversation %s of project %s", c.ID, c.Project)
}

func (m *Importer) entry(at keyRow, space kv.Space, e kv.Entry) error {
	_, err := m.s.writer.run("INSERT INTO kv (agent_no, project, key, size, updated_ms, expires_ms, body) VALUES (?, ?, ?, ?, ?, ?, ?)",
		at.no, at.project, e.Key, e.Size(), e.UpdatedMS, e.ExpiresMS, m.s.sealer.Seal(e.Value, kvOwner(space, e.Key)))
	if err != nil {
		return err
	}
	return m.tx().countKeys(at, 1, e.Size())
}

func (m *Importer) event(e *export.Event) (err error) {
	no := int64(0)
	if e.AgentID != "" {
		if no, err = m.agentNo(e.Project, e.AgentID); err != nil {
			return err
		}
	}
	_, err = m.s.writer.run("INSERT INTO event (id, agent_no, agent_id, project, type, created_ms, body) VALUES (?, ?, ?, ?, ?, ?, ?)",
		e.ID, no, e.AgentID, e.Project, int64(e.Type), e.CreatedMS, []byte(e.Body))
	return clash(err, "event %s", e.ID)
}

func (m *Importer) delivery(d *export.Delivery) error {
	w := m.s.writer.conn
	event, err := w.number("SELECT no FROM event WHERE id = ? AND project = ?", d.Event, d.Project)
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
	_, err = w.run(`INSERT INTO delivery (id, event_no, endpoint_no, state, attempt, due_ms, fence, reason, created_ms, done_ms, first_ms, urgent, replay_of)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, d.ID, event, to, state, int64(d.Attempt), d.DueMS, d.Fence, string(d.Reason), d.Created, d.DoneMS,
		d.FirstMS, boolean(d.Urgent), d.ReplayOf)
	if err != nil {
		return clash(err, "delivery %d", d.ID)
	}
	for i, a := range d.Attempts {
		detail, err := webhook.EncodeDetail(a.Detail)
		if err != nil {
			return err
		}
		_, err = w.run(`INSERT INTO attempt (delivery_id, n, fence, started_ms, duration_ms, status, error_class, error, response, truncated, detail)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, d.ID, int64(a.N), int64(i-len(d.Attempts)), a.StartedMS, a.DurationMS, int64(a.Status), a.ErrorClass, a.Error,
			a.Response, boolean(a.Truncated), detail)
		if err != nil {
			return clash(err, "an attempt of delivery %d", d.ID)
		}
	}
	return nil
}

// endpointNo returns the row of a delivery's endpoint. All deliveries of a deleted endpoint share
// one row.
func (m *Importer) endpointNo(d *export.Delivery) (int64, error) {
	w := m.s.writer.conn
	if !d.Gone {
		no, err := w.number("SELECT no FROM endpoint WHERE id = ? AND project = ?", d.Endpoint, d.Project)
		if err == nil && no == 0 {
			err = fault.New(fault.Invalid, "delivery %d is for an endpoint %q that is not there", d.ID, d.Endpoint)
		}
		return no, err
	}
	no, err := w.number("SELECT no FROM endpoint WHERE id IS NULL AND gone_id = ? AND project = ?", d.Endpoint, d.Project)
	if err != nil || no != 0 {
		return no, err
	}
	res, err := w.run("INSERT INTO endpoint (id, gone_id, project, body, secrets) VALUES (NULL, ?, ?, '', x'')", d.Endpoint, d.Project)
	if err != nil {
		return 0, err
	}
	return res.LastInsertId()
}

// Unfinished reports whether an import is unfinished, so that its end may be missing.
func (s *Store) Unfinished(ctx context.Context) (found bool, err error) {
	err = s.readers.do(ctx, func(c *conn) (err error) { found, err = unfinished(c); return err })
	return found, err
}

// Unfinished reports whether an import is unfinished.
func (r *Reader) Unfinished(context.Context) (bool, error) { return unfinished(r.c) }

func unfinished(c *conn) (bool, error) {
	n, err := c.number("SELECT count(*) FROM meta WHERE key = ?", importMark)
	return n > 0, classify(err, "read the mark")
}
