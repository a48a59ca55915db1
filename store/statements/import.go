package statements

import (
	"fmt"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/store/codec"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/webhook"
)

// importMark is the key in table meta of an unfinished import.
const importMark = "import"

// NoImport is a condition: no import is unfinished.
const NoImport = "NOT EXISTS (SELECT 1 FROM meta WHERE key = '" + importMark + "')"

// Mark returns the mark of an unfinished import, nil if there is none.
func Mark(db eacher) (mark []byte, err error) {
	_, err = first(db, func(row Row) { mark = append([]byte{}, row.Blob(0)...) }, "SELECT value FROM meta WHERE key = ?", importMark)
	return mark, err
}

// Store writes those rows that differ between the stores.
type Store interface {
	// InsertAgent stores an agent without messages. private is its encoded settings, not sealed.
	InsertAgent(h *memory.Head, private []byte) (no int64, err error)
	// InsertMessage stores a message of the agent with that number.
	InsertMessage(no int64, key encryption.Key, m *memory.Message, body string) error
	// Key returns the key that seals for an owner.
	Key(of encryption.Of) (encryption.Key, error)
	// Insert stores a row of table item, event or attempt. It returns the number of an event.
	Insert(table string, columns []string, values ...any) (no int64, err error)
	// InsertEndpoint stores a new endpoint.
	InsertEndpoint(e *webhook.Endpoint) error
	// InsertDelivery stores a delivery without its attempts.
	InsertDelivery(d *export.Delivery, eventNo, endpointNo, state int64) error
	// CountKey counts a new entry of package kv, of an agent or, with number 0, of a project.
	CountKey(agentNo int64, project string, size int64) error
	// LockSpace locks a space of records, and creates it if it is missing.
	LockSpace(at record.Space) (no int64, state record.State, err error)
	// Inserted stores what goes with a record that was just inserted: the words by which it is
	// found, and, where nothing else counts it, what it uses.
	Inserted(spaceNo int64, v *export.Value) error
	// Flush stores what the calls before have left to it.
	Flush() error
	// Taken reports whether a statement failed because such a row exists.
	Taken(err error) bool
}

// Import stores records in one transaction and replaces the mark; see export.Target.
func Import(db Writer, to Store, batch []export.Record, had, mark []byte) error {
	m := importing{db: db, to: to, keys: map[int64]encryption.Of{}, nos: map[memory.Ref]int64{}, events: map[name]int64{}, endpoints: map[name]int64{}}
	// First, so that another import waits here.
	if err := m.move(had, mark); err != nil {
		return err
	}
	for i := range batch {
		if err := m.record(&batch[i]); err != nil {
			return err
		}
	}
	return to.Flush()
}

// name is the ID of something of a project.
type name struct{ project, id string }

// importing is a batch under way.
type importing struct {
	db        Writer
	keys      map[int64]encryption.Of // by the number of an agent
	to        Store
	nos       map[memory.Ref]int64 // numbers of agents
	events    map[name]int64       // of this batch
	endpoints map[name]int64
	near      Near // messages of the last agent in the batch
}

// move replaces a mark by another.
func (m *importing) move(had, mark []byte) (err error) {
	var n int64
	switch {
	case had == nil && mark == nil:
		n, err = number(m.db, "SELECT count(*) FROM meta WHERE key = ?", importMark)
		n = 1 - n
	case had == nil:
		n, err = m.db.Exec("INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING", importMark, mark)
	case mark == nil:
		n, err = m.db.Exec("DELETE FROM meta WHERE key = ? AND value = ?", importMark, had)
	default:
		n, err = m.db.Exec("UPDATE meta SET value = ? WHERE key = ? AND value = ?", mark, importMark, had)
	}
	if err == nil && n != 1 {
		err = export.ErrMoved()
	}
	return err
}

func (m *importing) record(r *export.Record) error {
	switch {
	case r.Key != nil:
		name := keyOwner(r.Key.Name)
		key, err := m.to.Key(encryption.Of{})
		if err == nil {
			_, err = m.db.Exec("INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING", name, key.Seal(r.Key.Value, name))
		}
		return err
	case r.Endpoint != nil:
		return m.endpoint(r.Endpoint)
	case r.Agent != nil:
		m.near = nil
		return m.agent(r.Agent)
	case r.Message != nil:
		return m.message(r.Message)
	case r.Item != nil:
		return m.item(r.Item)
	case r.Working != nil:
		e := r.Working
		entry := kv.Entry{Key: e.Key, Value: e.Value, UpdatedMS: e.UpdatedMS, ExpiresMS: e.ExpiresMS, Pinned: e.Pinned}
		return m.taken(m.entry(kv.Space{Project: e.Project, Agent: e.AgentID}, entry), "key %s of agent %s", e.Key, e.AgentID)
	case r.Conversation != nil:
		c := r.Conversation
		e := kv.Entry{Key: c.ID, Value: c.Body, UpdatedMS: c.UpdatedMS, ExpiresMS: kv.Never, Pinned: c.Pinned}
		if c.ExpiresMS > 0 {
			e.ExpiresMS = c.ExpiresMS
		}
		return m.taken(m.entry(kv.Space{Project: c.Project, Name: c.Namespace}, e), "conversation %s of project %s", c.ID, c.Project)
	case r.Value != nil:
		return m.value(r.Value)
	case r.Event != nil:
		return m.event(r.Event)
	case r.Delivery != nil:
		return m.delivery(r.Delivery)
	}
	return nil
}

// taken returns which record cannot be imported if that is why a statement failed.
func (m *importing) taken(err error, format string, args ...any) error {
	if err != nil && m.to.Taken(err) {
		return export.ErrTaken(err, fmt.Sprintf(format, args...))
	}
	return err
}

// agentNo returns the number of an agent that something imported belongs to.
func (m *importing) agentNo(project, id string) (int64, error) {
	k := memory.Ref{Project: project, ID: id}
	if no := m.nos[k]; no != 0 {
		return no, nil
	}
	no, err := number(m.db, "SELECT no FROM agent WHERE project = ? AND id = ?", project, id)
	if err == nil && no == 0 {
		err = fault.New(fault.Invalid, "there is no agent %q of project %q, which something imported belongs to", id, project)
	}
	m.nos[k] = no
	return no, err
}

func (m *importing) endpoint(e *webhook.Endpoint) error {
	project := ""
	found, err := first(m.db, func(row Row) { project = row.Text(0) }, "SELECT project FROM endpoint WHERE id = ?", e.ID)
	switch {
	case err != nil:
		return err
	case !found:
		return m.to.InsertEndpoint(e)
	case project != e.Project:
		return fault.New(fault.Conflict, "endpoint %s cannot be imported: another project has one of that id", e.ID)
	}
	return nil
}

func (m *importing) agent(a *export.Agent) error {
	private, err := codec.EncodeAgent(&a.Agent)
	if err != nil {
		return err
	}
	no, err := m.to.InsertAgent(&memory.Head{Agent: &a.Agent, Rev: a.HeadRev, NextSeq: a.NextSeq, LastTurn: a.LastTurn, Tally: a.Tally}, private)
	m.nos[memory.Ref{Project: a.Project, ID: a.ID}], m.keys[no] = no, AgentKey(&a.Agent)
	return m.taken(err, "agent %s (%s) of project %s", a.ID, a.Name, a.Project)
}

func (m *importing) message(msg *export.Message) error {
	no, err := m.agentNo(msg.Project, msg.AgentID)
	if err != nil {
		return err
	}
	m.near.refer(&msg.Message)
	m.near.Add(&msg.Message)
	body, err := codec.EncodeMessage(&msg.Message)
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "a message cannot be stored")
	}
	key, err := m.agentKey(no, msg.Project)
	if err != nil {
		return err
	}
	return m.taken(m.to.InsertMessage(no, key, &msg.Message, body), "message %d of agent %s", msg.Seq, msg.AgentID)
}

// agentKey returns the key that seals for an agent, which this or an earlier batch has stored.
func (m *importing) agentKey(no int64, project string) (encryption.Key, error) {
	of, there := m.keys[no]
	if !there {
		user := ""
		if _, err := first(m.db, func(row Row) { user = row.Text(0) }, "SELECT value FROM agent_tag WHERE agent_no = ? AND name = ''", no); err != nil {
			return encryption.Key{}, err
		}
		of = KeyOf(project, user)
		m.keys[no] = of
	}
	return m.to.Key(of)
}

var itemColumns = []string{"project", "id", "agent_no", "seq", "user_id", "session_id", "task_id", "agent_id"}

func (m *importing) item(it *export.Item) error {
	no, err := m.agentNo(it.Project, it.AgentID)
	if err != nil {
		return err
	}
	r := &it.Row
	id, agentID := r.Stored(it.Project, it.AgentID, it.Seq)
	_, err = m.to.Insert("item", itemColumns, r.Project, id, no, it.Seq, r.UserID, r.SessionID, r.TaskID, agentID)
	return m.taken(err, "item %s of project %s", r.ID, r.Project)
}

func (m *importing) entry(space kv.Space, e kv.Entry) error {
	no, project := int64(0), space.Owner()
	if space.Agent != "" {
		var err error
		if no, err = m.agentNo(space.Project, space.Agent); err != nil {
			return err
		}
		project = ""
	}
	key, err := m.to.Key(encryption.Of{Project: space.Project})
	if err != nil {
		return err
	}
	_, err = m.db.Exec("INSERT INTO kv (agent_no, project, key, size, updated_ms, expires_ms, pinned, used_ms, uses, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1, ?)",
		no, project, e.Key, e.Size(), e.UpdatedMS, e.ExpiresMS, e.Pinned, e.UpdatedMS, key.Seal(e.Value, KVOwner(space, e.Key)))
	if err != nil {
		return err
	}
	return m.to.CountKey(no, project, e.Size())
}

func (m *importing) value(v *export.Value) error {
	at := v.Space()
	key, err := m.to.Key(KeyOf(at.Project, at.User))
	if err != nil {
		return err
	}
	no, state, err := m.to.LockSpace(at)
	if err != nil {
		return err
	}
	// In the place of a deletion.
	n, err := m.db.Exec(`INSERT INTO record (space_no, id, rev, updated_ms, size, body) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (space_no, id) DO UPDATE SET rev = excluded.rev, updated_ms = excluded.updated_ms, size = excluded.size, body = excluded.body WHERE record.body IS NULL`,
		no, string(v.ID), v.Rev, v.UpdatedMS, v.Size(), key.Seal(v.Body, RecordOwner(at, string(v.ID))))
	if err == nil && n == 0 {
		err = export.ErrThere(v)
	}
	if err == nil {
		err = m.to.Inserted(no, v)
	}
	if err != nil {
		return err
	}
	to := v.Place(state)
	_, err = m.db.Exec("UPDATE record_space SET rev = ?, n = ?, bytes = ?, whole = ? WHERE no = ?", to.Rev, to.Count, to.Bytes, to.CompactedRev, no)
	return err
}

var eventColumns = []string{"id", "agent_no", "agent_id", "project", "type", "created_ms", "body", "size"}

func (m *importing) event(e *export.Event) (err error) {
	no, key := int64(0), encryption.Key{}
	if e.AgentID == "" {
		key, err = m.to.Key(encryption.Of{Project: e.Project})
	} else if no, err = m.agentNo(e.Project, e.AgentID); err == nil {
		key, err = m.agentKey(no, e.Project)
	}
	if err != nil {
		return err
	}
	m.events[name{e.Project, e.ID}], err = m.to.Insert("event", eventColumns, e.ID, no, e.AgentID, e.Project, int64(e.Type), e.CreatedMS, EventBody(key, e.ID, []byte(e.Body)), int64(len(e.Body)))
	return m.taken(err, "event %s", e.ID)
}

func (m *importing) delivery(d *export.Delivery) error {
	event, err := m.eventNo(d)
	if err != nil {
		return err
	}
	to, err := m.endpointNo(d)
	if err != nil {
		return err
	}
	state, err := webhook.StateNumber(d.State)
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "a delivery has an unknown state")
	}
	if err := m.to.InsertDelivery(d, event, to, int64(state)); err != nil {
		return m.taken(err, "delivery %d", d.ID)
	}
	for i := range d.Attempts {
		row, err := attemptRow(d.ID, int64(i-len(d.Attempts)), &d.Attempts[i])
		if err == nil {
			_, err = m.to.Insert("attempt", attemptFields, row...)
		}
		if err != nil {
			return m.taken(err, "an attempt of delivery %d", d.ID)
		}
	}
	return nil
}

// eventNo returns the number of a delivery's event.
func (m *importing) eventNo(d *export.Delivery) (int64, error) {
	k := name{d.Project, d.Event}
	if no := m.events[k]; no != 0 {
		return no, nil
	}
	no, err := number(m.db, "SELECT no FROM event WHERE id = ? AND project = ?", d.Event, d.Project)
	if err == nil && no == 0 {
		err = fault.New(fault.Invalid, "delivery %d is of an event %q that is not there", d.ID, d.Event)
	}
	m.events[k] = no
	return no, err
}

var attemptFields = []string{"delivery_id", "n", "fence", "started_ms", "duration_ms", "status", "error_class", "error", "response", "truncated", "detail"}

// attemptRow returns attemptFields of an attempt.
func attemptRow(delivery, fence int64, a *webhook.Attempt) ([]any, error) {
	detail, err := webhook.EncodeDetail(a.Detail)
	return []any{delivery, int64(a.N), fence, a.StartedMS, a.DurationMS, int64(a.Status), a.ErrorClass, a.Error, a.Response, a.Truncated, detail}, err
}

// InsertAttempt stores an attempt of a delivery.
func InsertAttempt(db Writer, delivery, fence int64, a *webhook.Attempt) error {
	row, err := attemptRow(delivery, fence, a)
	if err == nil {
		_, err = db.Exec("INSERT INTO attempt ("+strings.Join(attemptFields, ", ")+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row...)
	}
	return err
}

// endpointNo returns the row of a delivery's endpoint. All deliveries of a deleted endpoint share
// one row.
func (m *importing) endpointNo(d *export.Delivery) (int64, error) {
	if !d.Gone {
		k := name{d.Project, d.Endpoint}
		if no := m.endpoints[k]; no != 0 {
			return no, nil
		}
		no, err := number(m.db, "SELECT no FROM endpoint WHERE id = ? AND project = ?", d.Endpoint, d.Project)
		if err == nil && no == 0 {
			err = fault.New(fault.Invalid, "delivery %d is for an endpoint %q that is not there", d.ID, d.Endpoint)
		}
		m.endpoints[k] = no
		return no, err
	}
	for {
		no, err := number(m.db, "SELECT min(no) FROM endpoint WHERE id IS NULL AND gone_id = ? AND project = ?", d.Endpoint, d.Project)
		if err != nil || no != 0 {
			return no, err
		}
		if _, err := m.db.Exec("INSERT INTO endpoint (id, gone_id, project, body, secrets) VALUES (NULL, ?, ?, '', ?)", d.Endpoint, d.Project, []byte{}); err != nil {
			return 0, err
		}
	}
}

// Clashes calls each for those records that an import would refuse now; see export.Target.
func Clashes(db eacher, batch []export.Record, each func(r export.Record, why string)) error {
	for i := range batch {
		why, err := against(db, &batch[i])
		if err != nil {
			return err
		}
		if why != "" {
			each(batch[i], why)
		}
	}
	return nil
}

// clash is a query that finds why a record cannot be imported.
type clash struct {
	why, sql string
	args     []any
}

// against returns why a record cannot be imported; "" if it can.
func against(db eacher, r *export.Record) (why string, err error) {
	for _, c := range clashes(r) {
		if found, err := first(db, nil, c.sql, c.args...); err != nil || found {
			return c.why, err
		}
	}
	return "", nil
}

func clashes(r *export.Record) []clash {
	switch {
	case r.Endpoint != nil:
		return []clash{{export.OtherProject, "SELECT 1 FROM endpoint WHERE id = ? AND project <> ?", []any{r.Endpoint.ID, r.Endpoint.Project}}}
	case r.Conversation != nil:
		return []clash{{export.IsThere, "SELECT 1 FROM kv WHERE agent_no = 0 AND project = ? AND key = ?", []any{kv.Space{Project: r.Conversation.Project, Name: r.Conversation.Namespace}.Owner(), r.Conversation.ID}}}
	case r.Value != nil:
		at := r.Value.Space()
		return []clash{{export.IsThere, "SELECT 1 FROM record_space s JOIN record r ON r.space_no = s.no WHERE s.project = ? AND s.name = ? AND s.user_id = ? AND r.id = ? AND r.body IS NOT NULL",
			[]any{at.Project, at.Name, at.User, string(r.Value.ID)}}}
	case r.Event != nil:
		return []clash{{export.IsThere, "SELECT 1 FROM event WHERE id = ?", []any{r.Event.ID}}}
	case r.Agent == nil:
		return nil
	}
	a := r.Agent
	out := []clash{{export.IsThere, "SELECT 1 FROM agent WHERE project = ? AND id = ?", []any{a.Project, a.ID}}}
	if a.JoinKey != "" {
		out = append(out, clash{export.JoinKeyTaken, "SELECT 1 FROM agent WHERE project = ? AND join_key = ? AND join_key <> ''", []any{a.Project, a.JoinKey}})
	}
	if a.Status.Ended() {
		return out
	}
	if a.Name != "" {
		out = append(out, clash{export.NameTaken, "SELECT 1 FROM agent WHERE project = ? AND name = ? AND name <> '' AND status NOT IN (4, 6)", []any{a.Project, a.Name}})
	}
	for _, k := range a.Settings.Call.Keys {
		out = append(out, clash{export.CallKeyTaken, `SELECT 1 FROM agent_key k JOIN agent a ON a.no = k.agent_no
			WHERE k.project = ? AND k.key = ? AND NOT k.shared AND a.status NOT IN (4, 6)`, []any{a.Project, k}})
	}
	return out
}
