package sqlite

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/encryption"
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
func (t *tx) insertEvent(agentNo int64, key encryption.Key, m webhook.Event, to func(*endpoint) bool) error {
	var eventNo int64
	for _, e := range t.s.index.byProject[m.Project] {
		if !to(e) {
			continue
		}
		if eventNo == 0 {
			var err error
			if eventNo, err = t.insertEventRow(agentNo, key, m); err != nil {
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
func (t *tx) insertEvents(agentNo int64, key encryption.Key, of memory.Ref, list []memory.Event) error {
	for i := range list {
		ev := &list[i]
		e := webhook.Event{ID: ev.ID, Type: ev.Type, Project: of.Project, AgentID: of.ID, CreatedMS: ev.CreatedMS, Body: ev.Body}
		if err := t.insertEvent(agentNo, key, e, func(to *endpoint) bool { return to.takes(ev.Type, ev.CreatedMS) }); err != nil {
			return err
		}
	}
	return nil
}

// rewriteEvents replaces the bodies of stored events of an agent.
func (t *tx) rewriteEvents(agentNo int64, key encryption.Key, list []memory.Event) error {
	for _, ev := range list {
		if _, err := t.Exec("UPDATE event SET body = ?, size = ? WHERE id = ? AND agent_no = ?", statements.EventBody(key, ev.ID, ev.Body), int64(len(ev.Body)), ev.ID, agentNo); err != nil {
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

func (t *tx) insertEventRow(agentNo int64, key encryption.Key, m webhook.Event) (no int64, err error) {
	return t.Insert("INSERT INTO event (id, agent_no, agent_id, project, type, created_ms, body, size) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		m.ID, agentNo, m.AgentID, m.Project, int64(m.Type), m.CreatedMS, statements.EventBody(key, m.ID, m.Body), int64(len(m.Body)))
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
		f.urgent = n-t.s.claimedTests(e.no) < webhook.MaxUrgent
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
	if s.db.Closed() {
		return dbfile.ErrClosed()
	}
	h, err := s.beginFinish(d)
	if err != nil {
		return err
	}
	err = s.db.WriteLater(ctx, "finish delivery", s.in(func(t *tx) error {
		due, done, attempt := r.DueMS, int64(0), h.attempt
		if state != statePending {
			due, done = 0, max(r.AtMS, 1)
		}
		if r.Untried {
			attempt--
		}
		n, err := t.Exec(`UPDATE delivery SET state = ?, due_ms = ?, reason = ?, done_ms = ?, attempt = ?, fence = ?, urgent = 0
			WHERE id = ? AND state = 0`, state, due, r.Reason, done, int64(attempt), d.Fence, d.ID)
		if err != nil {
			return err
		}
		if n != 1 {
			return staleClaim(d)
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
		t.After(func() {
			s.endClaim(d, false)
			if state == statePending {
				s.noteDue(h.endpoint, due)
			}
			if r.Untried {
				s.wake()
			}
		})
		return t.conclude(h.endpoint, d, r)
	}))
	if err != nil {
		s.endClaim(d, !fault.Is(err, fault.Conflict))
	}
	return err
}

func staleClaim(d webhook.Delivery) error {
	return fault.New(fault.Conflict, "delivery %d was claimed again or closed since claim %d", d.ID, d.Fence)
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
	claimed := s.claimed()
	list, err := json.Marshal(slices.AppendSeq([]int64{}, maps.Keys(claimed)))
	if err != nil {
		return b, err
	}
	err = s.db.Read(ctx, "count deliveries", func(c *dbfile.Conn) error {
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
		tried, err := c.Number(`SELECT min(oldest) FROM (SELECT (SELECT CASE d.first_ms WHEN 0 THEN d.created_ms ELSE d.first_ms END FROM delivery d INDEXED BY delivery_first
			WHERE d.endpoint_no = e.no AND d.state = 0 AND d.attempt > 0 ORDER BY CASE d.first_ms WHEN 0 THEN d.created_ms ELSE d.first_ms END LIMIT 1) AS oldest FROM endpoint e)`)
		if err != nil {
			return err
		}
		b.OldestPending = earlier(untried, tried)
		for retry := int64(0); retry <= 1; retry++ {
			at, err := c.Number(`SELECT min(oldest) FROM (SELECT (SELECT d.due_ms FROM delivery d WHERE d.endpoint_no = e.no AND (d.attempt > 0) = ? AND d.state = 0
				AND d.id NOT IN (SELECT value FROM json_each(?)) ORDER BY d.due_ms LIMIT 1) AS oldest FROM endpoint e)`, retry, string(list))
			if err != nil {
				return err
			}
			b.OldestDue = earlier(b.OldestDue, at)
		}
		return c.Each("SELECT id FROM delivery WHERE state = 0 AND id IN (SELECT value FROM json_each(?))", []any{string(list)}, func(row dbfile.Row) error {
			b.OldestDue = earlier(b.OldestDue, claimed[row.Int(0)].until)
			return nil
		})
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
