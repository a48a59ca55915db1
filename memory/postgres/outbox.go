package postgres

import (
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/webhook"
)

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

// write adds the parts that store the events of agents and their deliveries.
func (o *outbox) write(st *statement) {
	e, d := &o.events, &o.deliveries
	if len(e.ids) == 0 {
		return
	}
	st.with("events", `INSERT INTO event (id, agent_no, agent_id, project, type, created_ms, body)
		SELECT u.id, u.agent_no, u.agent_id, u.project, u.type, u.created_ms, u.body
		FROM unnest(?::text[], ?::bigint[], ?::text[], ?::text[], ?::int[], ?::bigint[], ?::bytea[]) WITH ORDINALITY
			u (id, agent_no, agent_id, project, type, created_ms, body, ord) WHERE u.`+found+` ORDER BY u.ord RETURNING no, id`,
		e.ids, e.nos, e.agents, e.projects, e.types, e.created, e.bodies)
	st.with("deliveries", `INSERT INTO delivery (event_no, endpoint_no, project, state, attempt, retry, due_ms, fence, claimed, reason, created_ms, done_ms, first_ms,
			urgent, replay_of, replay_no)
		SELECT e.no, u.endpoint_no, u.project, 0, 0, false, u.due_ms, 0, false, '', u.created_ms, 0, u.due_ms, false, 0, 0
		FROM unnest(?::text[], ?::bigint[], ?::text[], ?::bigint[], ?::bigint[]) WITH ORDINALITY u (event_id, endpoint_no, project, due_ms, created_ms, ord)
		JOIN events e ON e.id = u.event_id ORDER BY u.ord`, d.events, d.endpoints, d.projects, d.due, d.made)
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

// insertDeliveries adds deliveries of stored events. A test goes first, as long as few tests wait
// for its endpoint.
const insertDeliveries = `INSERT INTO delivery (event_no, endpoint_no, project, state, attempt, retry, due_ms, fence, claimed, reason, created_ms, done_ms, first_ms, urgent,
		replay_of, replay_no)
	SELECT e.no, u.endpoint_no, u.project, 0, 0, false, u.due_ms, 0, false, '', u.created_ms, 0, u.due_ms,
		e.type = $8 AND u.replay_of = 0 AND (SELECT count(*) FROM delivery d WHERE d.endpoint_no = u.endpoint_no AND d.state = 0 AND d.urgent) < $9, u.replay_of, u.replay_no
	FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[]) WITH ORDINALITY
		u (event_id, endpoint_no, project, due_ms, created_ms, replay_of, replay_no, ord) JOIN event e ON e.id = u.event_id ORDER BY u.ord`

// outboxOf returns what a change's events write: a delivery for each of the project's endpoints
// that wants the type.
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
