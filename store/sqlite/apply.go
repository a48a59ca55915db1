package sqlite

import (
	"context"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/codec"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
	"github.com/heardlog/heardlog/store/statements"
)

// Apply stores writes. Each is a job of its own, so that they share a transaction with whatever
// else waits to be written.
func (s *Store) Apply(ctx context.Context, batch []memory.Write) ([]error, error) {
	jobs := make([]*dbfile.Job, len(batch))
	last := make(map[int64]*dbfile.Job, len(batch)) // by agent
	for i := range batch {
		w, before := &batch[i], last[batch[i].No]
		bodies := packAll(w.Bodies)
		jobs[i] = &dbfile.Job{Run: s.in(func(t *tx) error {
			// The version alone does not show it: another write may have made the same one.
			if before != nil && before.Err != nil {
				return memory.ErrStale
			}
			return t.apply(w, bodies)
		})}
		last[w.No] = jobs[i]
	}
	defer func() {
		for no := range last {
			s.changed.note(no)
		}
	}()
	if err := s.db.WriteAll(ctx, "store a change", jobs); err != nil {
		return nil, err
	}
	errs := make([]error, len(jobs))
	for i, j := range jobs {
		errs[i] = j.Err
	}
	return errs, nil
}

// Create stores a new agent.
func (s *Store) Create(ctx context.Context, w memory.Write, limit int) (no int64, existing string, err error) {
	bodies := packAll(w.Bodies)
	err = s.write(ctx, "create an agent", func(t *tx) (err error) {
		no, existing, err = t.create(&w, bodies, limit)
		return err
	})
	s.changed.note(no)
	if err != nil {
		return 0, "", err
	}
	return no, existing, nil
}

func (t *tx) create(w *memory.Write, bodies [][]byte, limit int) (no int64, existing string, err error) {
	a := w.Head.Agent
	if a.JoinKey != "" {
		row, err := t.Conn.First("SELECT id FROM agent WHERE project = ? AND join_key = ? AND join_key <> ''", a.Project, a.JoinKey)
		if err != nil {
			return 0, "", err
		}
		if row != nil {
			return 0, row.Text(0), nil
		}
	}
	n, err := t.Conn.Number("SELECT count(*) FROM agent WHERE project = ? AND id = ?", a.Project, a.ID)
	if err == nil && n > 0 {
		err = fault.New(fault.Conflict, "there is an agent %q already", a.ID)
	}
	if err != nil {
		return 0, "", err
	}
	if !a.Status.Ended() {
		if err := t.mayLive(a, limit); err != nil {
			return 0, "", err
		}
	}
	key, err := t.key(statements.AgentKey(a))
	if err != nil {
		return 0, "", err
	}
	if no, err = t.insertAgent(w.Head, key.Seal(w.Private, statements.AgentOwner(w.Project, w.ID)), w.Bytes()); err != nil {
		return 0, "", err
	}
	t.count(a.Status, +1)
	return no, "", t.writeRows(w, no, key, bodies)
}

// insertAgent stores a new agent. written is how many bytes of messages come with it.
func (t *tx) insertAgent(h *memory.Head, private []byte, written int64) (no int64, err error) {
	a := h.Agent
	no, err = t.Insert(`INSERT INTO agent (project, id, name, channel, status, start_ms, stop_ms, message, rev, join_key, join_hash, head_rev, next_seq, last_turn, written, tally)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, a.Project, a.ID, a.Name, a.Settings.Channel, int64(a.Status), a.StartMS, a.StopMS,
		a.Message, a.Rev, a.JoinKey, a.JoinHash, h.Rev, h.NextSeq, h.LastTurn, written, h.Tally.Encode())
	if err != nil {
		return 0, err
	}
	if _, err := t.Exec("INSERT INTO agent_settings (agent_no, body) VALUES (?, ?)", no, private); err != nil {
		return 0, err
	}
	for shared, keys := range [][]string{a.Settings.Call.Keys, a.Settings.Call.Shared} {
		for _, k := range keys {
			_, err := t.Exec("INSERT INTO agent_key (project, key, agent_no, shared) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", a.Project, k, no, int64(shared))
			if err != nil {
				return 0, err
			}
		}
	}
	if err := t.due(no, h); err != nil {
		return 0, err
	}
	return no, t.insertTags(no, h)
}

// insertTags stores the tags of an agent that has none stored.
func (t *tx) insertTags(no int64, h *memory.Head) error {
	a := h.Agent
	for _, tag := range h.Tags() {
		_, err := t.Exec("INSERT INTO agent_tag (project, name, value, start_ms, agent_no) VALUES (?, ?, ?, ?, ?)", a.Project, tag.Name, tag.Value, a.StartMS, no)
		if err != nil {
			return err
		}
	}
	return nil
}

// mayLive fails if a live agent has the new agent's name or one of its keys, or if the project has
// limit live agents, or the memory model as many as it allows.
func (t *tx) mayLive(a *memory.Agent, limit int) error {
	if a.Name != "" {
		row, err := t.Conn.First("SELECT id FROM agent WHERE project = ? AND name = ? AND status NOT IN (4, 6) AND name <> ''", a.Project, a.Name)
		if err != nil {
			return err
		}
		if row != nil {
			return &memory.NameTakenError{
				AgentID: row.Text(0), Err: fault.At(fault.Conflict, "name", "a running agent has the name %q already", a.Name),
			}
		}
	}
	if limit > 0 {
		n, err := t.Conn.Number("SELECT count(*) FROM (SELECT 1 FROM agent INDEXED BY agent_live WHERE project = ? AND status NOT IN (4, 6) LIMIT ?+0)", a.Project, int64(limit))
		if err == nil && n >= int64(limit) {
			err = fault.New(fault.Quota, "the project runs %d agents already, which is its limit", limit)
		}
		if err != nil {
			return err
		}
	}
	if m := &a.Settings.Memory; m.MaxSessions > 0 {
		n, err := t.Conn.Number(`SELECT count(*) FROM agent a INDEXED BY agent_live WHERE a.project = ? AND a.status NOT IN (4, 6)
			AND EXISTS (SELECT 1 FROM agent_tag g WHERE g.agent_no = a.no AND g.name = ? AND g.value = ?)`, a.Project, memory.ModelTag, m.Model)
		if err == nil && n >= int64(m.MaxSessions) {
			err = a.ErrSessions()
		}
		if err != nil {
			return err
		}
	}
	return keysAreFree(t.Conn, a)
}

// keysAreFree fails if a live agent has one of a new agent's own keys.
func keysAreFree(c *dbfile.Conn, a *memory.Agent) error {
	for _, k := range a.Settings.Call.Keys {
		row, err := c.First(`SELECT a.id FROM agent_key k JOIN agent a ON a.no = k.agent_no
			WHERE k.project = ? AND k.key = ? AND k.shared = 0 AND a.status NOT IN (4, 6) LIMIT 1`, a.Project, k)
		if err == nil && row != nil {
			err = memory.KeyTaken(k, row.Text(0))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// apply writes one change, unless the agent no longer has the version that the change was decided
// on.
func (t *tx) apply(w *memory.Write, bodies [][]byte) error {
	if statements.MustCheck(w) {
		if err := t.holds().Write(w); err != nil {
			return err
		}
	}
	if err := t.updateAgent(w); err != nil {
		return err
	}
	key, err := t.key(statements.AgentKey(w.Head.Agent))
	if err != nil {
		return err
	}
	if w.Private != nil {
		private := key.Seal(w.Private, statements.AgentOwner(w.Project, w.ID))
		if _, err := t.Exec("UPDATE agent_settings SET body = ? WHERE agent_no = ?", private, w.No); err != nil {
			return err
		}
	}
	return t.writeRows(w, w.No, key, bodies)
}

// updateAgent compares the agent's version and sets the new one, in one statement.
func (t *tx) updateAgent(w *memory.Write) (err error) {
	var n int64
	if a := w.Change.Agent; a == nil {
		n, err = t.Exec("UPDATE agent SET head_rev = ?, next_seq = ?, last_turn = ?, written = written + ?, tally = ? WHERE no = ? AND head_rev = ?",
			w.Head.Rev, w.Head.NextSeq, w.Head.LastTurn, w.Bytes(), w.Head.Tally.Encode(), w.No, w.Rev)
	} else {
		n, err = t.Exec(`UPDATE agent SET head_rev = ?, next_seq = ?, last_turn = ?, written = written + ?, tally = ?, name = ?, channel = ?, status = ?, start_ms = ?, stop_ms = ?, message = ?,
			rev = ?, join_key = ?, join_hash = ? WHERE no = ? AND head_rev = ?`, w.Head.Rev, w.Head.NextSeq, w.Head.LastTurn, w.Bytes(), w.Head.Tally.Encode(), a.Name, a.Settings.Channel, int64(a.Status), a.StartMS, a.StopMS,
			a.Message, a.Rev, a.JoinKey, a.JoinHash, w.No, w.Rev)
	}
	if err == nil && n == 0 {
		err = memory.ErrStale
	}
	if a := w.Change.Agent; err == nil && a != nil && a.Status != w.Before {
		t.count(w.Before, -1)
		t.count(a.Status, +1)
	}
	if err == nil {
		err = t.due(w.No, w.Head)
	}
	if err == nil && w.Retagged {
		if _, err = t.Exec("DELETE FROM agent_tag WHERE agent_no = ?", w.No); err == nil {
			err = t.insertTags(w.No, w.Head)
		}
	}
	return err
}

// packAll returns the stored forms of bodies.
func packAll(bodies []string) [][]byte {
	out := make([][]byte, len(bodies))
	for i, body := range bodies {
		out[i] = codec.Pack(body)
	}
	return out
}

// writeRows writes the messages and events of a change. bodies are packed.
func (t *tx) writeRows(w *memory.Write, no int64, key encryption.Key, bodies [][]byte) error {
	for i := range w.Change.Append {
		m := &w.Change.Append[i]
		if err := t.insertMessage(no, key, m, bodies[0]); err != nil {
			return err
		}
		if err := t.writeItem(w.Ref, no, m, true); err != nil {
			return err
		}
		bodies = bodies[1:]
	}
	for i := range w.Change.Replace {
		m := &w.Change.Replace[i]
		n, err := t.Exec("UPDATE message SET rev = ?, turn = ?, shown = ?, body = ? WHERE agent_no = ? AND seq = ? AND client_id IS ?",
			m.Rev, m.TurnID, m.InHistory(), withSum(no, m, statements.MessageBody(key, no, m.Seq, bodies[0])), no, m.Seq, clientID(m.ID))
		if err == nil && n != 1 {
			err = fault.New(fault.Internal, "a decision replaced message %d, which is not there under the id %q", m.Seq, m.ID)
		}
		if err != nil {
			return err
		}
		if err := t.writeItem(w.Ref, no, m, false); err != nil {
			return err
		}
		bodies = bodies[1:]
	}
	if err := t.rewriteEvents(no, key, w.Change.Rewritten); err != nil {
		return err
	}
	return t.insertEvents(no, key, w.Ref, w.Change.Events)
}
