package sqlite

import (
	"bytes"
	"context"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/codec"
	"github.com/heardlog/heardlog/webhook"
)

// hints is what an agent's head holds beyond what its row and its last message tell. Writing the head with every message would touch
// one more page a message; these change seldom: when something other than the last message was changed last (rev), when
// a turn number went down in order of Seq (turn), or when numbers were kept free far ahead (seq).
type hints struct{ rev, turn, seq int64 }

var noHints = hints{turn: -1}

// makeHead makes a head from what is stored.
func makeHead(a memory.Agent, last *memory.Message, h hints) memory.Head {
	head := memory.NewHead(a, last, h.rev)
	if last != nil {
		head.Rev = max(head.Rev, last.Rev)
	}
	head.LastTurn = max(head.LastTurn, h.turn)
	head.NextSeq = max(head.NextSeq, h.seq)
	return head
}

// Create stores a new agent.
func (s *Store) Create(ctx context.Context, a memory.Agent, limit int, c memory.Change) (stored memory.Agent, created bool, err error) {
	if c.Agent != nil {
		return memory.Agent{}, false, fault.New(fault.Internal, "a new agent's change holds an agent")
	}
	err = s.do(ctx, func(g *group) error {
		stored, created = memory.Agent{}, false
		old, err := g.create(a, limit, c)
		if err != nil {
			return err
		}
		stored, created = a, old == nil
		if old != nil {
			stored = *old
		}
		return nil
	})
	if err != nil {
		return memory.Agent{}, false, err
	}
	return stored, created, nil
}

func (g *group) create(a memory.Agent, limit int, c memory.Change) (old *memory.Agent, err error) {
	if a.JoinKey != "" {
		row, err := g.w.first("SELECT id FROM agent WHERE project = ? AND join_key = ? AND join_key <> ''", a.Project, a.JoinKey)
		if err != nil {
			return nil, classify(err, "look for the join key")
		}
		if row != nil {
			v, err := g.view(key{a.Project, text(row[0])})
			if err != nil {
				return nil, err
			}
			return &v.head.Agent, nil
		}
	}
	if a.Name != "" {
		row, err := g.w.first("SELECT id FROM agent WHERE project = ? AND name = ? AND status NOT IN (4, 6) AND name <> ''", a.Project, a.Name)
		if err != nil {
			return nil, classify(err, "look for the name")
		}
		if row != nil {
			return nil, &memory.NameTakenError{
				AgentID: text(row[0]), Err: fault.At(fault.Conflict, "name", "a running agent has the name %q already", a.Name),
			}
		}
	}
	if limit > 0 {
		n, err := g.w.number("SELECT count(*) FROM (SELECT 1 FROM agent INDEXED BY agent_live WHERE project = ? AND status NOT IN (4, 6) LIMIT ?+0)", a.Project, int64(limit))
		if err != nil {
			return nil, classify(err, "count live agents")
		}
		if n >= int64(limit) {
			return nil, fault.New(fault.Quota, "the project runs %d agents already, which is its limit", limit)
		}
	}
	n, err := g.w.number("SELECT count(*) FROM agent WHERE project = ? AND id = ?", a.Project, a.ID)
	if err != nil {
		return nil, classify(err, "look for the id")
	}
	if n > 0 {
		return nil, fault.New(fault.Conflict, "there is an agent %q already", a.ID)
	}
	if err := g.freeKeys(&a); err != nil {
		return nil, err
	}
	packed, err := codec.EncodeAgent(&a)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "the store failed")
	}
	_, no, err := g.exec("insert agent", `INSERT INTO agent (project, id, name, channel, status, start_ms, stop_ms, message, rev, join_key, join_hash)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, a.Project, a.ID, a.Name, a.Settings.Channel, int64(a.Status), a.StartMS, a.StopMS,
		a.Message, a.Rev, a.JoinKey, a.JoinHash)
	if err != nil {
		return nil, err
	}
	if _, _, err := g.exec("insert settings", "INSERT INTO agent_settings (agent_no, body) VALUES (?, ?)", no, g.s.sealer.Seal(packed, agentOwner(a.Project, a.ID))); err != nil {
		return nil, err
	}
	if err := g.writeKeys(no, &a); err != nil {
		return nil, err
	}
	g.pages += 8 + len(packed)/4096
	g.count(a.Status, +1)
	v := &view{no: no, head: memory.NewHead(a, nil, 0), hint: noHints, full: true}
	return nil, g.write(key{a.Project, a.ID}, v, c)
}

// Update runs a decision and writes what it says.
func (s *Store) Update(ctx context.Context, project, id string, decide memory.Decision) error {
	k := key{project, id}
	if err := s.known(ctx, k); err != nil {
		return err
	}
	return s.do(ctx, updating(k, decide))
}

// known reads an agent that is not in memory: the caller does it, and not the committer while everybody waits for it.
func (s *Store) known(ctx context.Context, k key) error {
	if s.cache.get(k) != nil {
		return nil
	}
	_, err := s.load(ctx, k, 0, false)
	return err
}

// updating gives what the committer runs for a decision.
func updating(k key, decide memory.Decision) func(*group) error {
	return func(g *group) error {
		v, err := g.view(k)
		if err != nil {
			return err
		}
		t := &tx{g: g, k: k, v: v}
		c, err := decide(t)
		if err != nil || c.Empty() {
			return err
		}
		return g.write(k, t.v, c)
	}
}

// write writes a change of the agent whose state is v.
func (g *group) write(k key, v *view, c memory.Change) error {
	if c.Agent != nil {
		if err := g.writeAgent(k, v, c.Agent); err != nil {
			return err
		}
	}
	if err := g.appendMessages(k, v.no, c.Append); err != nil {
		return err
	}
	for i := range c.Replace {
		if err := g.replaceMessage(k, v.no, &c.Replace[i]); err != nil {
			return err
		}
	}
	n := v.apply(c)
	if err := g.writeHints(v, n); err != nil {
		return err
	}
	if err := g.writeEvents(k, v.no, c.Events); err != nil {
		return err
	}
	g.messages += len(c.Append) + len(c.Replace)
	g.set(k, n)
	return nil
}

func (g *group) writeAgent(k key, v *view, a *memory.Agent) error {
	if a.ID != k.id || a.Project != k.project {
		return fault.New(fault.Internal, "a decision changed the agent's id or project")
	}
	old := &v.head.Agent
	_, _, err := g.exec("update agent", `UPDATE agent SET name = ?, channel = ?, status = ?, start_ms = ?, stop_ms = ?, message = ?, rev = ?,
		join_key = ?, join_hash = ? WHERE no = ?`, a.Name, a.Settings.Channel, int64(a.Status), a.StartMS, a.StopMS, a.Message, a.Rev,
		a.JoinKey, a.JoinHash, v.no)
	if err != nil {
		return err
	}
	g.pages += 4
	if a.Status != old.Status {
		g.count(old.Status, -1)
		g.count(a.Status, +1)
	}
	was, err := codec.EncodeAgent(old)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "the store failed")
	}
	is, err := codec.EncodeAgent(a)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "the store failed")
	}
	if bytes.Equal(was, is) {
		return nil
	}
	g.pages += 2 + len(is)/4096
	_, _, err = g.exec("update settings", "UPDATE agent_settings SET body = ? WHERE agent_no = ?", g.s.sealer.Seal(is, agentOwner(k.project, k.id)), v.no)
	return err
}

const insertMessage = "INSERT INTO message (agent_no, seq, rev, turn, shown, client_id, body) VALUES (?, ?, ?, ?, ?, ?, ?)"

func (g *group) appendMessages(k key, no int64, list []memory.Message) error {
	for i := range list {
		m := &list[i]
		if m.Seq < 1 {
			return fault.New(fault.Internal, "a decision appended a message without seq")
		}
		body, err := codec.EncodeMessage(m)
		if err != nil {
			return fault.Wrap(fault.Internal, err, "the store failed")
		}
		if _, _, err := g.exec("insert message", insertMessage, no, m.Seq, m.Rev, m.TurnID, boolean(m.InHistory()), clientID(m.ID), body); err != nil {
			return err
		}
		g.pages += 1 + len(body)/4096
		if err := g.writeItem(k, no, m, true); err != nil {
			return err
		}
	}
	return nil
}

func (g *group) replaceMessage(k key, no int64, m *memory.Message) error {
	body, err := codec.EncodeMessage(m)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "the store failed")
	}
	n, _, err := g.exec("replace message", "UPDATE message SET rev = ?, turn = ?, shown = ?, body = ? WHERE agent_no = ? AND seq = ? AND client_id IS ?",
		m.Rev, m.TurnID, boolean(m.InHistory()), body, no, m.Seq, clientID(m.ID))
	if err == nil && n != 1 {
		err = fault.New(fault.Internal, "a decision replaced message %d, which is not there under the id %q", m.Seq, m.ID)
	}
	g.pages += 2 + len(body)/4096
	if err != nil {
		return err
	}
	return g.writeItem(k, no, m, false)
}

// clientID gives the column: null where the client gave none.
func clientID(id string) any {
	if id == "" {
		return nil
	}
	return id
}

// writeHints stores what the head n would lack if it were made from its row and its last message.
func (g *group) writeHints(old, n *view) error {
	if n.head.LastTurn > n.head.Last.TurnID && n.head.Last.Seq != 0 {
		n.hint.turn = n.head.LastTurn
	}
	var last *memory.Message
	if n.head.Last.Seq != 0 {
		last = &n.head.Last
	}
	h := makeHead(n.head.Agent, last, n.hint)
	if h.Rev < n.head.Rev {
		n.hint.rev = n.head.Rev
	}
	if h.NextSeq < n.head.NextSeq {
		n.hint.seq = n.head.NextSeq
	}
	if n.hint == old.hint {
		return nil
	}
	g.pages++
	_, _, err := g.exec("update hints", "UPDATE agent SET hint_rev = ?, hint_turn = ?, hint_seq = ? WHERE no = ?", n.hint.rev, n.hint.turn, n.hint.seq, n.no)
	return err
}

// writeEvents puts events in the outbox, one delivery for each endpoint that wants it; what nobody wants is not stored.
func (g *group) writeEvents(k key, no int64, events []memory.Event) error {
	for i := range events {
		ev := &events[i]
		m := webhook.Event{ID: ev.ID, Type: ev.Type, Project: k.project, AgentID: k.id, CreatedMS: ev.CreatedMS, Body: ev.Body}
		if err := g.insertEvent(no, m, func(e *endpoint) bool { return e.takes(ev.Type, ev.CreatedMS) }); err != nil {
			return err
		}
	}
	return nil
}

// count moves an agent between the numbers that Count gives, once the group is committed.
func (g *group) count(status memory.Status, by int64) {
	if status < 0 || int(status) >= memory.Statuses {
		return
	}
	g.after = append(g.after, func() { g.s.counts[status].Add(by) })
}
