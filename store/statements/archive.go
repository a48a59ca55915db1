package statements

import (
	"fmt"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/codec"
	"github.com/heardlog/heardlog/store/encryption"
)

// EndedCalls implements memory.ColdStore.
func EndedCalls(db Reader, beforeMS, afterMS, afterNo int64, limit int) (list []memory.EndedCall, err error) {
	err = db.Each(`SELECT a.no, a.project, a.id, a.stop_ms, EXISTS (SELECT 1 FROM archived x WHERE x.agent_no = a.no AND x.used = 1),
			EXISTS (SELECT 1 FROM event e JOIN delivery d ON d.event_no = e.no WHERE e.agent_no = a.no AND d.state = 0)
		FROM agent a WHERE a.status IN (4, 6) AND a.stop_ms >= ? AND a.stop_ms < ? AND (a.stop_ms, a.no) > (?, ?) AND `+NoImport+" ORDER BY a.stop_ms, a.no LIMIT ?+0",
		[]any{afterMS, beforeMS, afterMS, afterNo, int64(limit)}, func(row Row) error {
			list = append(list, memory.EndedCall{
				No: row.Int(0), Ref: memory.Ref{Project: row.Text(1), ID: row.Text(2)}, StopMS: row.Int(3), Cold: row.Bool(4), Waits: row.Bool(5),
			})
			return nil
		})
	return list, err
}

// NoteObject implements memory.ColdStore.
func NoteObject(db Writer, o memory.ColdObject, nowMS int64) error {
	_, err := db.Exec("INSERT INTO archived (agent_no, object, used, made_ms) VALUES (?, ?, 0, ?)", o.No, o.Name, nowMS)
	return err
}

// Freeze deletes the rows of a call for memory.ColdStore. The store has compared the version and
// set the settings.
func Freeze(db Writer, m *memory.Move) error {
	if err := changes(db, 1, "UPDATE archived SET used = 1 WHERE agent_no = ? AND object = ? AND used = 0 AND made_ms > 0", m.No, m.Object); err != nil {
		return err
	}
	if err := changes(db, int64(m.Messages), "DELETE FROM message WHERE agent_no = ?", m.No); err != nil {
		return err
	}
	for i := range m.Events {
		if _, err := db.Exec("UPDATE event SET size = coalesce(size, length(body)), body = ? WHERE id = ? AND agent_no = ?", []byte{}, m.Events[i].ID, m.No); err != nil {
			return err
		}
	}
	return nil
}

// Thaw brings the bodies of a call's events back for memory.ColdStore. The store has compared the
// version, set the settings and inserts the messages.
func Thaw(db Writer, key encryption.Key, m *memory.Move) error {
	if err := changes(db, 1, "UPDATE archived SET used = 0, made_ms = 0 WHERE agent_no = ? AND object = ? AND used = 1", m.No, m.Object); err != nil {
		return err
	}
	for i := range m.Events { // those that are still there
		if _, err := db.Exec("UPDATE event SET body = ? WHERE id = ? AND agent_no = ?", EventBody(key, m.Events[i].ID, m.Events[i].Body), m.Events[i].ID, m.No); err != nil {
			return err
		}
	}
	return nil
}

// EventBody returns the stored form of the body of an event.
func EventBody(key encryption.Key, id string, body []byte) []byte {
	return key.SealBody(codec.Pack(body), EventOwner(id))
}

// OpenEvent returns the body of an event of which the stored form is given.
func OpenEvent(s encryption.Sealer, id string, stored []byte) ([]byte, error) {
	packed, err := s.OpenBody(stored, func() string { return EventOwner(id) })
	if err != nil {
		return nil, err
	}
	return codec.Unpack(packed)
}

// MessageBody returns the stored form of the packed body of a message.
func MessageBody(key encryption.Key, agentNo, seq int64, packed []byte) []byte {
	return key.SealBody(packed, MessageOwner(agentNo, seq))
}

// OpenMessage decodes the stored form of the body of a message of an agent, whose Seq, Rev, TurnID
// and ID the caller has set.
func OpenMessage(s encryption.Sealer, agentNo int64, stored []byte, m *memory.Message) error {
	packed, err := s.OpenBody(stored, func() string { return MessageOwner(agentNo, m.Seq) })
	if err != nil {
		return fmt.Errorf("message %d: %w", m.Seq, err)
	}
	return codec.DecodeMessage(packed, m)
}

// changes runs a statement and returns memory.ErrStale if it does not change n rows.
func changes(db Writer, n int64, sql string, args ...any) error {
	got, err := db.Exec(sql, args...)
	if err == nil && got != n {
		err = memory.ErrStale
	}
	return err
}

// Unneeded implements memory.ColdStore. An object is marked as unneeded before it is deleted, so
// that no call takes it in between.
func Unneeded(db Writer, beforeMS int64, limit int) (list []memory.ColdObject, err error) {
	if _, err := db.Exec("UPDATE archived SET made_ms = 0 WHERE used = 0 AND made_ms > 0 AND made_ms < ?", beforeMS); err != nil {
		return nil, err
	}
	err = db.Each("SELECT agent_no, object FROM archived WHERE used = 0 AND made_ms = 0 LIMIT ?+0", []any{int64(limit)}, func(row Row) error {
		list = append(list, memory.ColdObject{No: row.Int(0), Name: row.Text(1)})
		return nil
	})
	return list, err
}

// ErasedObjects makes the objects of an erased agent unneeded.
const ErasedObjects = "UPDATE archived SET used = 0, made_ms = 0 WHERE agent_no = ?"

// ForgetObject implements memory.ColdStore.
func ForgetObject(db Writer, o memory.ColdObject) error {
	_, err := db.Exec("DELETE FROM archived WHERE agent_no = ? AND object = ? AND used = 0 AND made_ms = 0", o.No, o.Name)
	return err
}
