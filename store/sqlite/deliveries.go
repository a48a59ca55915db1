package sqlite

import (
	"context"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
	"github.com/heardlog/heardlog/store/statements"
	"github.com/heardlog/heardlog/webhook"
)

// Values of delivery.state, as webhook.StateNumber returns them.
const (
	statePending  = 0
	stateCanceled = 3 // the last
)

func stateNumber(s webhook.DeliveryState) (int64, error) {
	n, err := webhook.StateNumber(s)
	return int64(n), err
}

func stateName(n int64) webhook.DeliveryState { return webhook.StateOf(int(n)) }

// insertEvent stores an event with a delivery for each endpoint of its project for which to returns
// true. If there is none, nothing is stored.
func (t *tx) insertEvent(agentNo int64, m webhook.Event, to func(*endpoint) bool) error {
	var eventNo int64
	for _, e := range t.s.index.byProject[m.Project] {
		if !to(e) {
			continue
		}
		if eventNo == 0 {
			var err error
			if eventNo, err = t.insertEventRow(agentNo, m); err != nil {
				return err
			}
		}
		if _, err := t.insertDelivery(eventNo, e, fresh{dueMS: m.CreatedMS, createdMS: m.CreatedMS, urgent: m.Type == event.Test}); err != nil {
			return err
		}
	}
	return nil
}

// insertEvents stores the events of a change of an agent or, with number 0, of a project.
func (t *tx) insertEvents(agentNo int64, of memory.Ref, list []memory.Event) error {
	for i := range list {
		ev := &list[i]
		e := webhook.Event{ID: ev.ID, Type: ev.Type, Project: of.Project, AgentID: of.ID, CreatedMS: ev.CreatedMS, Body: ev.Body}
		if err := t.insertEvent(agentNo, e, func(to *endpoint) bool { return to.takes(ev.Type, ev.CreatedMS) }); err != nil {
			return err
		}
	}
	return nil
}

// rewriteEvents replaces the bodies of stored events of an agent.
func (t *tx) rewriteEvents(agentNo int64, list []memory.Event) error {
	for _, ev := range list {
		if _, err := t.Exec("UPDATE event SET body = ? WHERE id = ? AND agent_no = ?", ev.Body, ev.ID, agentNo); err != nil {
			return err
		}
		_, err := t.Exec(`UPDATE attempt SET response = NULL WHERE response IS NOT NULL
			AND delivery_id IN (SELECT d.id FROM delivery d JOIN event e ON e.no = d.event_no WHERE e.id = ? AND e.agent_no = ?)`, ev.ID, agentNo)
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) insertEventRow(agentNo int64, m webhook.Event) (no int64, err error) {
	return t.Insert("INSERT INTO event (id, agent_no, agent_id, project, type, created_ms, body) VALUES (?, ?, ?, ?, ?, ?, ?)",
		m.ID, agentNo, m.AgentID, m.Project, int64(m.Type), m.CreatedMS, m.Body)
}

// fresh describes a new delivery besides its event and endpoint.
type fresh struct {
	dueMS, createdMS int64
	replayOf         int64
	replayNo         int64 // of the replay of many that makes it
	urgent           bool
}

// insertDelivery stores a new delivery and returns its ID.
func (t *tx) insertDelivery(eventNo int64, e *endpoint, f fresh) (int64, error) {
	first := int64(0)
	if f.dueMS != f.createdMS {
		first = f.dueMS
	}
	if f.urgent {
		n, err := t.Conn.Number("SELECT count(*) FROM delivery WHERE state = 0 AND urgent = 1 AND endpoint_no = ?", e.no)
		if err != nil {
			return 0, err
		}
		f.urgent = n < webhook.MaxUrgent
	}
	id, err := t.Insert(`INSERT INTO delivery (event_no, endpoint_no, state, attempt, due_ms, fence, reason, created_ms, replay_of, replay_no, first_ms, urgent)
		VALUES (?, ?, 0, 0, ?, 0, '', ?, ?, ?, ?, ?)`, eventNo, e.no, f.dueMS, f.createdMS, f.replayOf, f.replayNo, first, f.urgent)
	t.After(func() {
		t.s.noteDue(e.no, f.dueMS)
		t.s.wake()
	})
	return id, err
}

// Finish ends a claim and stores its result.
func (s *Store) Finish(ctx context.Context, d webhook.Delivery, r webhook.Result) error {
	state, err := stateNumber(r.State)
	if err != nil {
		return err
	}
	return s.db.WriteLater(ctx, "finish delivery", s.in(func(t *tx) error {
		no, err := t.claimed(d)
		if err != nil {
			return err
		}
		due, done := r.DueMS, int64(0)
		if state != statePending {
			due, done = 0, max(r.AtMS, 1)
		}
		_, err = t.Exec(`UPDATE delivery SET state = ?, due_ms = ?, reason = ?, done_ms = ?, attempt = attempt - ?, claimed = 0 WHERE id = ?`,
			state, due, r.Reason, done, r.Untried, d.ID)
		if err != nil {
			return err
		}
		if !r.Untried {
			try := r.Try
			if len(try.Response) > webhook.MaxResponse {
				try.Response, try.Truncated = try.Response[:webhook.MaxResponse], true
			}
			if err := statements.InsertAttempt(t.writing(), d.ID, d.Fence, &try); err != nil {
				return err
			}
		}
		if state == statePending {
			t.After(func() {
				if s.noteDue(no, due); r.Untried {
					s.wake()
				}
			})
		}
		return t.conclude(no, d, r)
	}))
}

// wake wakes the webhook worker.
func (s *Store) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// Backlog counts pending and dead deliveries and returns the age of the oldest.
func (s *Store) Backlog(ctx context.Context) (webhook.Backlog, error) {
	var b webhook.Backlog
	err := s.db.Read(ctx, "count deliveries", func(c *dbfile.Conn) error {
		// The planner would use the index of lists, which holds everything that was ever sent.
		pending, err := c.Number("SELECT count(*) FROM delivery INDEXED BY delivery_due WHERE state = 0")
		if err != nil {
			return err
		}
		dead, err := c.Number("SELECT count(*) FROM delivery INDEXED BY delivery_dead WHERE state = 2")
		if err != nil {
			return err
		}
		b.Pending, b.Dead = int(pending), int(dead)
		// By endpoint, with the indexes that claims use: an index of its own would be one more
		// write for each delivery. A delivery that has not been tried is due when it was first due.
		untried, err := c.Number(`SELECT min(oldest) FROM (SELECT (SELECT d.due_ms FROM delivery d WHERE d.endpoint_no = e.no AND (d.attempt > 0) = 0 AND d.state = 0
			ORDER BY d.due_ms LIMIT 1) AS oldest FROM endpoint e)`)
		if err != nil {
			return err
		}
		tried, err := c.Number(`SELECT min(oldest) FROM (SELECT (SELECT ` + firstDue + ` FROM delivery d INDEXED BY delivery_first
			WHERE d.endpoint_no = e.no AND d.state = 0 AND d.attempt > d.claimed ORDER BY ` + firstDue + ` LIMIT 1) AS oldest FROM endpoint e)`)
		if err != nil {
			return err
		}
		claimed, err := c.Number("SELECT min(" + firstDue + ") FROM delivery INDEXED BY delivery_claimed WHERE state = 0 AND claimed = 1")
		if err != nil {
			return err
		}
		b.OldestPending = earlier(earlier(untried, tried), claimed)
		again, err := c.Number(`SELECT min(oldest) FROM (SELECT (SELECT d.due_ms FROM delivery d WHERE d.endpoint_no = e.no AND (d.attempt > 0) = 1 AND d.state = 0
			ORDER BY d.due_ms LIMIT 1) AS oldest FROM endpoint e)`)
		b.OldestDue = earlier(untried, again)
		return err
	})
	return b, err
}

// earlier returns the earlier of two times; 0 is none.
func earlier(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// Woken returns a channel that receives a value after deliveries were committed.
func (s *Store) Woken() <-chan struct{} { return s.woken }
