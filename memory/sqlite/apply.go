package sqlite

import (
	"context"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/webhook"
)

// Apply stores writes. Each is a job of its own, so that they share a transaction with whatever
// else waits to be written.
func (s *Store) Apply(ctx context.Context, batch []memory.Write) ([]error, error) {
	jobs := make([]*job, len(batch))
	last := make(map[int64]*job, len(batch)) // by agent
	for i := range batch {
		w, before := &batch[i], last[batch[i].No]
		private := s.sealPrivate(w)
		jobs[i] = &job{run: func(t *tx) error {
			if before != nil && before.err != nil {
				return memory.ErrStale
			}
			return t.apply(w, private)
		}}
		last[w.No] = jobs[i]
	}
	if len(jobs) == 0 {
		return nil, nil
	}
	if err := s.submit(ctx, jobs...); err != nil {
		return nil, err
	}
	errs := make([]error, len(jobs))
	for i, j := range jobs {
		errs[i] = j.err
	}
	return errs, nil
}

func (s *Store) sealPrivate(w *memory.Write) []byte {
	if w.Private == nil {
		return nil
	}
	return s.sealer.Seal(w.Private, agentOwner(w.Project, w.ID))
}

// Create stores a new agent.
func (s *Store) Create(ctx context.Context, w memory.Write, limit int) (no int64, existing string, err error) {
	private := s.sealPrivate(&w)
	err = s.write(ctx, func(t *tx) (err error) {
		no, existing, err = t.create(&w, private, limit)
		return err
	})
	if err != nil {
		return 0, "", err
	}
	return no, existing, nil
}

func (t *tx) create(w *memory.Write, private []byte, limit int) (no int64, existing string, err error) {
	a := &w.Head.Agent
	if a.JoinKey != "" {
		row, err := t.w.first("SELECT id FROM agent WHERE project = ? AND join_key = ? AND join_key <> ''", a.Project, a.JoinKey)
		if err != nil || row != nil {
			if row != nil {
				existing = text(row[0])
			}
			return 0, existing, classify(err, "look for the join key")
		}
	}
	n, err := t.w.number("SELECT count(*) FROM agent WHERE project = ? AND id = ?", a.Project, a.ID)
	if err != nil {
		return 0, "", classify(err, "look for the id")
	}
	if n > 0 {
		return 0, "", fault.New(fault.Conflict, "there is an agent %q already", a.ID)
	}
	if !a.Status.Ended() {
		if err := t.mayLive(a, limit); err != nil {
			return 0, "", err
		}
	}
	_, no, err = t.exec("insert agent", `INSERT INTO agent (project, id, name, channel, status, start_ms, stop_ms, message, rev, join_key, join_hash, head_rev, next_seq, last_turn)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, a.Project, a.ID, a.Name, a.Settings.Channel, int64(a.Status), a.StartMS, a.StopMS,
		a.Message, a.Rev, a.JoinKey, a.JoinHash, w.Head.Rev, w.Head.NextSeq, w.Head.LastTurn)
	if err != nil {
		return 0, "", err
	}
	if _, _, err := t.exec("insert settings", "INSERT INTO agent_settings (agent_no, body) VALUES (?, ?)", no, private); err != nil {
		return 0, "", err
	}
	if err := t.insertKeys(no, a); err != nil {
		return 0, "", err
	}
	t.count(a.Status, +1)
	return no, "", t.writeRows(w, no)
}

// mayLive fails if a live agent has the new agent's name or one of its keys, or if the project has
// limit live agents.
func (t *tx) mayLive(a *memory.Agent, limit int) error {
	if a.Name != "" {
		row, err := t.w.first("SELECT id FROM agent WHERE project = ? AND name = ? AND status NOT IN (4, 6) AND name <> ''", a.Project, a.Name)
		if err != nil {
			return classify(err, "look for the name")
		}
		if row != nil {
			return &memory.NameTakenError{
				AgentID: text(row[0]), Err: fault.At(fault.Conflict, "name", "a running agent has the name %q already", a.Name),
			}
		}
	}
	if limit > 0 {
		n, err := t.w.number("SELECT count(*) FROM (SELECT 1 FROM agent INDEXED BY agent_live WHERE project = ? AND status NOT IN (4, 6) LIMIT ?+0)", a.Project, int64(limit))
		if err != nil {
			return classify(err, "count live agents")
		}
		if n >= int64(limit) {
			return fault.New(fault.Quota, "the project runs %d agents already, which is its limit", limit)
		}
	}
	return keysAreFree(t.w, a)
}

// keysAreFree fails if a live agent has one of a new agent's own keys.
func keysAreFree(c *conn, a *memory.Agent) error {
	for _, k := range a.Settings.Call.Keys {
		row, err := c.first(`SELECT a.id FROM agent_key k JOIN agent a ON a.no = k.agent_no
			WHERE k.project = ? AND k.key = ? AND k.shared = 0 AND a.status NOT IN (4, 6) LIMIT 1`, a.Project, k)
		if err != nil {
			return classify(err, "look for the key")
		}
		if row != nil {
			return memory.KeyTaken(k, text(row[0]))
		}
	}
	return nil
}

// insertKeys stores the keys by which a new agent is found.
func (t *tx) insertKeys(no int64, a *memory.Agent) error {
	for shared, keys := range [][]string{a.Settings.Call.Keys, a.Settings.Call.Shared} {
		for _, k := range keys {
			_, _, err := t.exec("insert key", "INSERT INTO agent_key (project, key, agent_no, shared) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", a.Project, k, no, int64(shared))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// apply writes one change, unless the agent no longer has the version that the change was decided
// on.
func (t *tx) apply(w *memory.Write, private []byte) error {
	if err := t.updateAgent(w); err != nil {
		return err
	}
	if private != nil {
		if _, _, err := t.exec("update settings", "UPDATE agent_settings SET body = ? WHERE agent_no = ?", private, w.No); err != nil {
			return err
		}
	}
	return t.writeRows(w, w.No)
}

// updateAgent compares the agent's version and sets the new one, in one statement.
func (t *tx) updateAgent(w *memory.Write) (err error) {
	var n int64
	if a := w.Change.Agent; a == nil {
		n, _, err = t.exec("update agent", "UPDATE agent SET head_rev = ?, next_seq = ?, last_turn = ? WHERE no = ? AND head_rev = ?",
			w.Head.Rev, w.Head.NextSeq, w.Head.LastTurn, w.No, w.Rev)
	} else {
		n, _, err = t.exec("update agent", `UPDATE agent SET head_rev = ?, next_seq = ?, last_turn = ?, name = ?, channel = ?, status = ?, start_ms = ?, stop_ms = ?, message = ?,
			rev = ?, join_key = ?, join_hash = ? WHERE no = ? AND head_rev = ?`, w.Head.Rev, w.Head.NextSeq, w.Head.LastTurn, a.Name, a.Settings.Channel, int64(a.Status), a.StartMS, a.StopMS,
			a.Message, a.Rev, a.JoinKey, a.JoinHash, w.No, w.Rev)
	}
	if err == nil && n == 0 {
		err = memory.ErrStale
	}
	if a := w.Change.Agent; err == nil && a != nil && a.Status != w.Before {
		t.count(w.Before, -1)
		t.count(a.Status, +1)
	}
	return err
}

// writeRows writes the messages and events of a change.
func (t *tx) writeRows(w *memory.Write, no int64) error {
	bodies := w.Bodies
	for i := range w.Change.Append {
		m := &w.Change.Append[i]
		if _, _, err := t.exec("insert message", insertMessage, no, m.Seq, m.Rev, m.TurnID, boolean(m.InHistory()), clientID(m.ID), bodies[0]); err != nil {
			return err
		}
		if err := t.writeItem(w.Ref, no, m, true); err != nil {
			return err
		}
		bodies = bodies[1:]
	}
	for i := range w.Change.Replace {
		m := &w.Change.Replace[i]
		n, _, err := t.exec("replace message", "UPDATE message SET rev = ?, turn = ?, shown = ?, body = ? WHERE agent_no = ? AND seq = ? AND client_id IS ?",
			m.Rev, m.TurnID, boolean(m.InHistory()), bodies[0], no, m.Seq, clientID(m.ID))
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
	for i := range w.Change.Events {
		ev := &w.Change.Events[i]
		e := webhook.Event{ID: ev.ID, Type: ev.Type, Project: w.Project, AgentID: w.ID, CreatedMS: ev.CreatedMS, Body: ev.Body}
		if err := t.insertEvent(no, e, func(to *endpoint) bool { return to.takes(ev.Type, ev.CreatedMS) }); err != nil {
			return err
		}
	}
	return nil
}
