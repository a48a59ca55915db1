package postgres

import (
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/store/statements"
	"github.com/heardlog/heardlog/webhook"
)

// outbox is new events with their deliveries, or new deliveries of stored events.
type outbox struct {
	events     []outboxEvent
	deliveries []outboxDelivery
}

type outboxEvent struct {
	webhook.Event
	agentNo int64
	stored  []byte // the body
}

type outboxDelivery struct {
	event, project     string // the event by its id
	endpoint, due      int64
	made               int64
	replayOf, replayNo int64
}

func (o *outbox) empty() bool { return len(o.deliveries) == 0 }

func (o *outbox) add(n outbox) {
	o.events, o.deliveries = append(o.events, n.events...), append(o.deliveries, n.deliveries...)
}

// event puts an event in for the endpoints; none, and nothing is stored.
func (o *outbox) event(agentNo int64, key encryption.Key, m webhook.Event, to []int64) {
	if len(to) == 0 {
		return
	}
	o.events = append(o.events, outboxEvent{m, agentNo, statements.EventBody(key, m.ID, m.Body)})
	for _, no := range to {
		o.deliveries = append(o.deliveries, outboxDelivery{event: m.ID, project: m.Project, endpoint: no, due: m.CreatedMS, made: m.CreatedMS})
	}
}

// write adds the parts that store the events of agents and their deliveries. A test goes first, as
// long as few tests wait for its endpoint.
func (o *outbox) write(st *pg.Parts) {
	if o.empty() {
		return
	}
	ids := pg.Column(o.deliveries, func(d *outboxDelivery) string { return pg.Stored(d.event) })
	if e := o.events; len(e) > 0 {
		st.With("events", `INSERT INTO event (id, agent_no, agent_id, project, type, created_ms, body, size)
			SELECT u.id, u.agent_no, u.agent_id, u.project, u.type, u.created_ms, u.body, u.size
			FROM unnest(?::text[], ?::bigint[], ?::text[], ?::text[], ?::int[], ?::bigint[], ?::bytea[], ?::bigint[]) WITH ORDINALITY
				u (id, agent_no, agent_id, project, type, created_ms, body, size, ord) WHERE u.`+found+` ORDER BY u.ord RETURNING no, id, type`,
			pg.Column(e, func(e *outboxEvent) string { return pg.Stored(e.ID) }), pg.Column(e, func(e *outboxEvent) int64 { return e.agentNo }),
			pg.Column(e, func(e *outboxEvent) string { return pg.Stored(e.AgentID) }), pg.Column(e, func(e *outboxEvent) string { return pg.Stored(e.Project) }),
			pg.Column(e, func(e *outboxEvent) int32 { return int32(e.Type) }), pg.Column(e, func(e *outboxEvent) int64 { return e.CreatedMS }),
			pg.Column(e, func(e *outboxEvent) []byte { return e.stored }), pg.Column(e, func(e *outboxEvent) int64 { return int64(len(e.Body)) }))
	} else {
		st.With("events", "SELECT no, id, type FROM event WHERE id = ANY(?::text[])", ids)
	}
	d := o.deliveries
	st.With("deliveries", `INSERT INTO delivery (event_no, endpoint_no, project, state, attempt, retry, due_ms, fence, claimed, reason, created_ms, done_ms, first_ms,
			urgent, replay_of, replay_no)
		SELECT e.no, u.endpoint_no, u.project, 0, 0, false, u.due_ms, 0, false, '', u.created_ms, 0, u.due_ms,
			e.type = ? AND u.replay_of = 0 AND (SELECT count(*) FROM delivery d WHERE d.endpoint_no = u.endpoint_no AND d.state = 0 AND d.urgent) < ?, u.replay_of, u.replay_no
		FROM unnest(?::text[], ?::bigint[], ?::text[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[]) WITH ORDINALITY
			u (event_id, endpoint_no, project, due_ms, created_ms, replay_of, replay_no, ord) JOIN events e ON e.id = u.event_id ORDER BY u.ord`,
		event.Test, webhook.MaxUrgent, ids, pg.Column(d, func(d *outboxDelivery) int64 { return d.endpoint }), pg.Column(d, func(d *outboxDelivery) string { return pg.Stored(d.project) }),
		pg.Column(d, func(d *outboxDelivery) int64 { return d.due }), pg.Column(d, func(d *outboxDelivery) int64 { return d.made }),
		pg.Column(d, func(d *outboxDelivery) int64 { return d.replayOf }), pg.Column(d, func(d *outboxDelivery) int64 { return d.replayNo }))
}

// queue queues a statement of its own.
func (o *outbox) queue(b *pgx.Batch) {
	if o.empty() {
		return
	}
	st := &pg.Parts{}
	st.With("head", "SELECT * FROM unnest(?::bigint[]) u (agent_no)", pg.Column(o.events, func(e *outboxEvent) int64 { return e.agentNo }))
	o.write(st)
	st.End("SELECT 1")
	st.Queue(b)
}

// outboxOf returns what a change's events write: a delivery for each of the project's endpoints
// that wants the type.
func (s *Store) outboxOf(k memory.Ref, no int64, key encryption.Key, events []memory.Event) (o outbox, err error) {
	for i := range events {
		ev := &events[i]
		if slices.ContainsFunc(events[:i], func(e memory.Event) bool { return e.ID == ev.ID }) {
			return outbox{}, fault.New(fault.Conflict, "there is an event %q already", ev.ID)
		}
		o.event(no, key, webhook.Event{ID: ev.ID, Type: ev.Type, Project: k.Project, AgentID: k.ID, CreatedMS: ev.CreatedMS, Body: ev.Body}, s.wanting(k.Project, ev.Type, ev.CreatedMS, 0))
	}
	return o, nil
}
