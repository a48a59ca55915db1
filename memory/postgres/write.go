package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/codec"
	"github.com/heardlog/heardlog/webhook"
)

// writes is what a group has to write, by kind: each kind is one statement, however many rows it has.
type writes struct {
	inserted, replaced rows
	place              map[place]int // of a message in inserted, and of one in replaced as its complement
	heads              struct{ nos, vers, revs, seqs, turns []int64 }
	agents             []agentRow
	events             outbox
	items              itemChanges
	bytes              int // of messages
}

type place struct{ no, seq int64 }

// rows is messages by column.
type rows struct {
	nos, seqs, revs, turns []int64
	shown                  []bool
	ids                    []*string
	bodies                 []string
}

func (r *rows) set(i int, no int64, m *memory.Message, body string) int {
	if i < 0 {
		i = len(r.nos)
		r.nos, r.seqs, r.revs, r.turns = append(r.nos, no), append(r.seqs, m.Seq), append(r.revs, 0), append(r.turns, 0)
		r.shown, r.ids, r.bodies = append(r.shown, false), append(r.ids, clientID(m.ID)), append(r.bodies, "")
	}
	r.revs[i], r.turns[i], r.shown[i], r.bodies[i] = m.Rev, m.TurnID, m.InHistory(), body
	return i
}

// clientID gives the column: null where the client gave none.
func clientID(id string) *string {
	if id == "" {
		return nil
	}
	id = stored(id)
	return &id
}

type agentRow struct {
	no       int64
	agent    memory.Agent
	settings []byte // nil: unchanged
	turned   bool   // between live and ended
}

func (w *writes) head(v *view) {
	h := &w.heads
	h.nos, h.vers, h.revs = append(h.nos, v.no), append(h.vers, v.ver), append(h.revs, v.head.Rev)
	h.seqs, h.turns = append(h.seqs, v.head.NextSeq), append(h.turns, v.head.LastTurn)
}

const (
	insertMessages = `INSERT INTO message (agent_no, seq, rev, turn, shown, client_id, body)
		SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::boolean[], $6::text[], $7::text[])`
	// A message that is not there under its id divides by zero, which undoes the transaction although its commit is on the way already.
	replaceMessages = `WITH done AS (UPDATE message m SET rev = u.rev, turn = u.turn, shown = u.shown, body = u.body
		FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::boolean[], $6::text[], $7::text[]) u (agent_no, seq, rev, turn, shown, client_id, body)
		WHERE m.agent_no = u.agent_no AND m.seq = u.seq AND coalesce(m.client_id, '') = coalesce(u.client_id, '') RETURNING 1)
		SELECT 1 / (CASE WHEN count(*) = $8 THEN 1 ELSE 0 END) FROM done`
	updateHeads = `UPDATE agent_head h SET ver = u.ver, rev = u.rev, next_seq = u.next_seq, last_turn = u.last_turn
		FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) u (agent_no, ver, rev, next_seq, last_turn) WHERE h.agent_no = u.agent_no`
	updateAgent = `UPDATE agent SET name = $2, channel = $3, status = $4, start_ms = $5, stop_ms = $6, message = $7, rev = $8, join_key = $9, join_hash = $10,
		settings = coalesce($11, settings) WHERE no = $1`
)

// appendsOnly tells that nothing but messages is to be written, and new ones only.
func (w *writes) appendsOnly() bool {
	return len(w.replaced.nos) == 0 && w.items.empty() && len(w.agents) == 0 && w.events.empty()
}

// queue puts the statements into a batch, in an order in which all replicas write.
func (w *writes) queue(b *pgx.Batch) {
	if r := &w.inserted; len(r.nos) > 0 {
		b.Queue(insertMessages, r.nos, r.seqs, r.revs, r.turns, r.shown, r.ids, r.bodies)
	}
	if r := &w.replaced; len(r.nos) > 0 {
		b.Queue(replaceMessages, r.nos, r.seqs, r.revs, r.turns, r.shown, r.ids, r.bodies, len(r.nos))
	}
	w.items.queue(b)
	for i := range w.agents {
		r := &w.agents[i]
		a := &r.agent
		b.Queue(updateAgent, r.no, stored(a.Name), stored(a.Settings.Channel), a.Status, a.StartMS, a.StopMS, stored(a.Message), a.Rev, stored(a.JoinKey), stored(a.JoinHash), r.settings)
		if r.turned {
			b.Queue("UPDATE agent_key SET live = $2 WHERE agent_no = $1", r.no, !a.Status.Ended())
		}
	}
	w.events.queue(b)
	if h := &w.heads; len(h.nos) > 0 {
		b.Queue(updateHeads, h.nos, h.vers, h.revs, h.seqs, h.turns)
	}
}

// add checks a change and takes it up; what it finds wrong fails alone, and leaves the group as it was.
func (g *group) add(k key, w *work, c memory.Change) error {
	var agent *agentRow
	if c.Agent != nil {
		row, err := g.s.agentRow(k, w.view, c.Agent)
		if err != nil {
			return err
		}
		agent = row
	}
	bodies, err := checkMessages(c)
	if err != nil {
		return err
	}
	events, err := g.s.outboxOf(k, w.view.no, c.Events)
	if err != nil {
		return err
	}
	// Numbers and ids in use are for the database to find, but for one that this group is about to write: that fails alone, too.
	no := w.view.no
	for i := range c.Append {
		if _, there := g.writes.place[place{no, c.Append[i].Seq}]; there {
			return taken(c.Append[i].Seq)
		}
	}
	g.writes.messages(no, c, bodies)
	g.writes.items.take(k, no, c)
	if agent != nil {
		g.writes.agents = append(g.writes.agents, *agent)
	}
	if !events.empty() {
		g.wake = true
		g.writes.events.add(events)
	}
	g.told = g.told || len(c.Events) > 0
	g.messages += len(c.Append) + len(c.Replace)
	w.view, w.changed = w.view.applyIn(c, w.changed), true
	return nil
}

// applyIn is apply for a group: its changes of one agent share a ver.
func (v *view) applyIn(c memory.Change, again bool) *view {
	n := v.apply(c)
	if again {
		n.ver = v.ver
	}
	return n
}

func taken(seq int64) error {
	return fault.New(fault.Conflict, "there is a message with seq %d already", seq)
}

// checkMessages checks what needs no database, and encodes.
func checkMessages(c memory.Change) ([]string, error) {
	bodies := make([]string, 0, len(c.Append)+len(c.Replace))
	for i := range c.Append {
		m := &c.Append[i]
		if m.Seq < 1 {
			return nil, fault.New(fault.Internal, "a decision appended a message without seq")
		}
		if slices.ContainsFunc(c.Append[:i], func(o memory.Message) bool { return o.Seq == m.Seq }) {
			return nil, taken(m.Seq)
		}
		if m.ID != "" && slices.ContainsFunc(c.Append[:i], func(o memory.Message) bool { return o.ID == m.ID }) {
			return nil, fault.New(fault.Conflict, "there is a message with the id %q already", m.ID)
		}
	}
	for _, list := range [][]memory.Message{c.Append, c.Replace} {
		for i := range list {
			body, err := codec.EncodeMessage(&list[i])
			if err != nil {
				return nil, fault.Wrap(fault.Internal, err, "the store failed")
			}
			bodies = append(bodies, body)
		}
	}
	return bodies, nil
}

// messages takes up a change's messages. A message that is changed twice before it is written is written once.
func (w *writes) messages(no int64, c memory.Change, bodies []string) {
	if w.place == nil {
		w.place = map[place]int{}
	}
	for _, body := range bodies {
		w.bytes += len(body)
	}
	for i := range c.Append {
		m := &c.Append[i]
		w.place[place{no, m.Seq}] = w.inserted.set(-1, no, m, bodies[i])
	}
	for i := range c.Replace {
		m := &c.Replace[i]
		body := bodies[len(c.Append)+i]
		at, there := w.place[place{no, m.Seq}]
		switch {
		case there && at >= 0 && sameID(w.inserted.ids[at], m.ID):
			w.inserted.set(at, no, m, body)
		case there && at < 0 && sameID(w.replaced.ids[^at], m.ID):
			w.replaced.set(^at, no, m, body)
		default:
			w.place[place{no, m.Seq}] = ^w.replaced.set(-1, no, m, body)
		}
	}
}

func sameID(a *string, id string) bool {
	b := clientID(id)
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// agentRow gives what an agent's new value writes.
func (s *Store) agentRow(k key, v *view, a *memory.Agent) (*agentRow, error) {
	if a.ID != k.id || a.Project != k.project {
		return nil, fault.New(fault.Internal, "a decision changed the agent's id or project")
	}
	old := &v.head.Agent
	was, err := codec.EncodeAgent(old)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "the store failed")
	}
	is, err := codec.EncodeAgent(a)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "the store failed")
	}
	row := &agentRow{no: v.no, agent: *a, turned: a.Status.Ended() != old.Status.Ended()}
	if !slices.Equal(was, is) {
		row.settings = s.sealer.Seal(is, agentOwner(k.project, k.id))
	}
	return row, nil
}

// Create stores a new agent.
func (s *Store) Create(ctx context.Context, a memory.Agent, limit int, c memory.Change) (stored memory.Agent, created bool, err error) {
	if c.Agent != nil {
		return memory.Agent{}, false, fault.New(fault.Internal, "a new agent's change holds an agent")
	}
	k := key{a.Project, a.ID}
	for try := 1; ; try++ {
		var v, old *view
		wake := false
		err = s.transact(ctx, "create agent", func(ctx context.Context, tx pgx.Tx) (err error) {
			v, old, wake, err = s.create(ctx, tx, a, limit, c)
			return err
		})
		// Somebody was quicker: the next look tells who.
		if try < maxTries && fault.Is(err, fault.Conflict) && slices.Contains([]string{"agent_live_name", "agent_join_key", "agent_key_live"}, violated(err)) {
			continue
		}
		switch {
		case violated(err) == "agent_id":
			return memory.Agent{}, false, fault.New(fault.Conflict, "there is an agent %q already", a.ID)
		case err != nil:
			return memory.Agent{}, false, err
		case old != nil:
			return old.head.Agent, false, nil
		}
		s.cache.Drop(k) // an erased one of the id
		s.cache.put(k, v)
		if wake {
			s.wake()
		}
		return a, true, nil
	}
}

// create looks for what stands against a new agent and writes it; old is the agent of the same join key.
func (s *Store) create(ctx context.Context, tx pgx.Tx, a memory.Agent, limit int, c memory.Change) (v, old *view, wake bool, err error) {
	if limit > 0 {
		_, err := tx.Exec(ctx, "INSERT INTO project_gate (project) VALUES ($1) ON CONFLICT DO NOTHING", stored(a.Project))
		if err == nil {
			_, err = tx.Exec(ctx, "SELECT 1 FROM project_gate WHERE project = $1 FOR UPDATE", stored(a.Project))
		}
		if err != nil {
			return nil, nil, false, err
		}
	}
	old, err = s.against(ctx, tx, &a, limit)
	if err != nil || old != nil {
		return nil, old, false, err
	}
	packed, err := codec.EncodeAgent(&a)
	if err != nil {
		return nil, nil, false, fault.Wrap(fault.Internal, err, "the store failed")
	}
	var no int64
	err = tx.QueryRow(ctx, `INSERT INTO agent (project, id, name, channel, status, start_ms, stop_ms, message, rev, join_key, join_hash, settings)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) RETURNING no`, stored(a.Project), stored(a.ID), stored(a.Name), stored(a.Settings.Channel), a.Status,
		a.StartMS, a.StopMS, stored(a.Message), a.Rev, stored(a.JoinKey), stored(a.JoinHash), s.sealer.Seal(packed, agentOwner(a.Project, a.ID))).Scan(&no)
	if err != nil {
		return nil, nil, false, err
	}
	bodies, err := checkMessages(c)
	if err != nil {
		return nil, nil, false, err
	}
	events, err := s.outboxOf(key{a.Project, a.ID}, no, c.Events)
	if err != nil {
		return nil, nil, false, err
	}
	v = newView(no, 0, memory.NewHead(a, nil, 0), nil, true).apply(c)
	var w writes
	w.messages(no, c, bodies)
	w.items.take(key{a.Project, a.ID}, no, c)
	w.events = events
	b := &pgx.Batch{}
	b.Queue("INSERT INTO agent_head (agent_no, ver, rev, next_seq, last_turn) VALUES ($1, $2, $3, $4, $5)", no, v.ver, v.head.Rev, v.head.NextSeq, v.head.LastTurn)
	queueKeys(b, no, &a)
	w.queue(b)
	return v, nil, !events.empty(), tx.SendBatch(ctx, b).Close()
}

func queueKeys(b *pgx.Batch, no int64, a *memory.Agent) {
	for shared, keys := range [][]string{a.Settings.Call.Keys, a.Settings.Call.Shared} {
		for _, k := range keys {
			b.Queue("INSERT INTO agent_key (project, key, agent_no, shared, live) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (project, key, agent_no) DO NOTHING",
				stored(a.Project), stored(k), no, shared == 1, !a.Status.Ended())
		}
	}
}

// against gives the agent that has the join key already, or the error that keeps a new one from being made. Endpoints are looked at with it.
func (s *Store) against(ctx context.Context, tx pgx.Tx, a *memory.Agent, limit int) (old *view, err error) {
	project := stored(a.Project)
	var joined, named, sameID *int64
	var namedID, keyID, heldKey *string
	var live int
	var endpoints int64
	b := &pgx.Batch{}
	one := func(into ...any) func(pgx.Row) error {
		return func(row pgx.Row) error {
			if err := row.Scan(into...); err != nil && !noRows(err) {
				return err
			}
			return nil
		}
	}
	b.Queue("SELECT n FROM counter WHERE key = 'endpoints'").QueryRow(one(&endpoints))
	if a.JoinKey != "" {
		b.Queue("SELECT no FROM agent WHERE project = $1 AND join_key = $2 AND join_key <> ''", project, stored(a.JoinKey)).QueryRow(one(&joined))
	}
	if !a.Status.Ended() {
		if a.Name != "" {
			b.Queue("SELECT no, id FROM agent WHERE project = $1 AND name = $2 AND status NOT IN (4, 6) AND name <> ''", project, stored(a.Name)).QueryRow(one(&named, &namedID))
		}
		if len(a.Settings.Call.Keys) > 0 {
			keys := make([]string, len(a.Settings.Call.Keys))
			for i, k := range a.Settings.Call.Keys {
				keys[i] = stored(k)
			}
			b.Queue(`SELECT a.id, k.key FROM agent_key k JOIN agent a ON a.no = k.agent_no WHERE k.project = $1 AND k.key = ANY($2) AND k.live AND NOT k.shared
				LIMIT 1`, project, keys).QueryRow(one(&keyID, &heldKey))
		}
		if limit > 0 {
			b.Queue("SELECT count(*) FROM (SELECT 1 FROM agent WHERE project = $1 AND status NOT IN (4, 6) LIMIT $2) l", project, limit).QueryRow(one(&live))
		}
	}
	b.Queue("SELECT no FROM agent WHERE project = $1 AND id = $2", project, stored(a.ID)).QueryRow(one(&sameID))
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, err
	}
	if err := s.freshEndpoints(ctx, tx, endpoints); err != nil {
		return nil, err
	}
	switch {
	case joined != nil:
		views, err := s.loadViews(ctx, tx, []int64{*joined})
		if err == nil && views[*joined] == nil {
			err = fault.New(fault.Unavailable, "the agent of the join key is just being erased; try again")
		}
		return views[*joined], err
	case named != nil:
		return nil, &memory.NameTakenError{
			AgentID: shown(*namedID), Err: fault.At(fault.Conflict, "name", "a running agent has the name %q already", a.Name),
		}
	case keyID != nil:
		return nil, memory.KeyTaken(shown(*heldKey), shown(*keyID))
	case limit > 0 && live >= limit:
		return nil, fault.New(fault.Quota, "the project runs %d agents already, which is its limit", limit)
	case sameID != nil:
		return nil, fault.New(fault.Conflict, "there is an agent %q already", a.ID)
	}
	return nil, nil
}

// outbox is events and their deliveries by column.
type outbox struct {
	events struct {
		ids, agents, projects []string
		nos, created          []int64
		types                 []int32
		bodies                [][]byte
	}
	deliveries struct {
		events, projects       []string // the event by its id
		endpoints, due, made   []int64
		replayOf, replayNumber []int64
	}
}

func (o *outbox) empty() bool { return len(o.deliveries.events) == 0 }

func (o *outbox) add(n outbox) {
	e, d := &o.events, &o.deliveries
	e.ids, e.agents, e.projects = append(e.ids, n.events.ids...), append(e.agents, n.events.agents...), append(e.projects, n.events.projects...)
	e.nos, e.created = append(e.nos, n.events.nos...), append(e.created, n.events.created...)
	e.types, e.bodies = append(e.types, n.events.types...), append(e.bodies, n.events.bodies...)
	d.events, d.projects = append(d.events, n.deliveries.events...), append(d.projects, n.deliveries.projects...)
	d.endpoints, d.due, d.made = append(d.endpoints, n.deliveries.endpoints...), append(d.due, n.deliveries.due...), append(d.made, n.deliveries.made...)
	d.replayOf, d.replayNumber = append(d.replayOf, n.deliveries.replayOf...), append(d.replayNumber, n.deliveries.replayNumber...)
}

// event puts an event in for the endpoints; none, and nothing is stored.
func (o *outbox) event(agentNo int64, m webhook.Event, to []int64) {
	if len(to) == 0 {
		return
	}
	e := &o.events
	e.ids, e.agents, e.projects = append(e.ids, stored(m.ID)), append(e.agents, stored(m.AgentID)), append(e.projects, stored(m.Project))
	e.nos, e.created, e.types, e.bodies = append(e.nos, agentNo), append(e.created, m.CreatedMS), append(e.types, int32(m.Type)), append(e.bodies, m.Body)
	for _, no := range to {
		o.delivery(m.ID, m.Project, no, m.CreatedMS, m.CreatedMS, 0, 0)
	}
}

func (o *outbox) delivery(eventID, project string, endpoint, due, made, replayOf, replayNo int64) {
	d := &o.deliveries
	d.events, d.projects, d.endpoints = append(d.events, stored(eventID)), append(d.projects, stored(project)), append(d.endpoints, endpoint)
	d.due, d.made = append(d.due, due), append(d.made, made)
	d.replayOf, d.replayNumber = append(d.replayOf, replayOf), append(d.replayNumber, replayNo)
}

func (o *outbox) queue(b *pgx.Batch) {
	if e := &o.events; len(e.ids) > 0 {
		b.Queue(`INSERT INTO event (id, agent_no, agent_id, project, type, created_ms, body)
			SELECT u.id, u.agent_no, u.agent_id, u.project, u.type, u.created_ms, u.body
			FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::int[], $6::bigint[], $7::bytea[]) WITH ORDINALITY
				u (id, agent_no, agent_id, project, type, created_ms, body, ord) ORDER BY u.ord`, e.ids, e.nos, e.agents, e.projects, e.types, e.created, e.bodies)
	}
	if d := &o.deliveries; len(d.events) > 0 {
		b.Queue(insertDeliveries, d.events, d.endpoints, d.projects, d.due, d.made, d.replayOf, d.replayNumber, event.Test, webhook.MaxUrgent)
	}
}

// insertDeliveries makes deliveries of events that are there. A test goes before everything else while few of its endpoint's do.
const insertDeliveries = `INSERT INTO delivery (event_no, endpoint_no, project, state, attempt, retry, due_ms, fence, claimed, reason, created_ms, done_ms, first_ms, urgent,
		replay_of, replay_no)
	SELECT e.no, u.endpoint_no, u.project, 0, 0, false, u.due_ms, 0, false, '', u.created_ms, 0, u.due_ms,
		e.type = $8 AND u.replay_of = 0 AND (SELECT count(*) FROM delivery d WHERE d.endpoint_no = u.endpoint_no AND d.state = 0 AND d.urgent) < $9, u.replay_of, u.replay_no
	FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[]) WITH ORDINALITY
		u (event_id, endpoint_no, project, due_ms, created_ms, replay_of, replay_no, ord) JOIN event e ON e.id = u.event_id ORDER BY u.ord`

// outboxOf gives what a change's events write: a delivery for each of the project's endpoints that wants the type.
func (s *Store) outboxOf(k key, no int64, events []memory.Event) (o outbox, err error) {
	for i := range events {
		ev := &events[i]
		if slices.ContainsFunc(events[:i], func(e memory.Event) bool { return e.ID == ev.ID }) {
			return outbox{}, fault.New(fault.Conflict, "there is an event %q already", ev.ID)
		}
		o.event(no, webhook.Event{ID: ev.ID, Type: ev.Type, Project: k.project, AgentID: k.id, CreatedMS: ev.CreatedMS, Body: ev.Body}, s.wanting(k.project, ev.Type, ev.CreatedMS, 0))
	}
	return o, nil
}
