package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/json"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
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
			_, id, err := t.exec("insert event", "INSERT INTO event (id, agent_no, agent_id, project, type, created_ms, body) VALUES (?, ?, ?, ?, ?, ?, ?)",
				m.ID, agentNo, m.AgentID, m.Project, int64(m.Type), m.CreatedMS, m.Body)
			if err != nil {
				return err
			}
			eventNo = id
		}
		if _, err := t.insertDelivery(eventNo, e, fresh{dueMS: m.CreatedMS, createdMS: m.CreatedMS, urgent: m.Type == event.Test}); err != nil {
			return err
		}
	}
	return nil
}

// fresh describes a new delivery besides its event and endpoint.
type fresh struct {
	dueMS, createdMS int64
	replayOf         int64
	urgent           bool
}

// insertDelivery stores a new delivery and returns its ID.
func (t *tx) insertDelivery(eventNo int64, e *endpoint, f fresh) (int64, error) {
	first := int64(0)
	if f.dueMS != f.createdMS {
		first = f.dueMS
	}
	if f.urgent {
		n, err := t.w.number("SELECT count(*) FROM delivery WHERE state = 0 AND urgent = 1 AND endpoint_no = ?", e.no)
		if err != nil {
			return 0, classify(err, "count tests")
		}
		f.urgent = n-t.s.claimedTests(e.no) < webhook.MaxUrgent
		t.tests = t.tests || f.urgent
	}
	_, id, err := t.exec("insert delivery", `INSERT INTO delivery (event_no, endpoint_no, state, attempt, due_ms, fence, reason, created_ms, replay_of, first_ms, urgent)
		VALUES (?, ?, 0, 0, ?, 0, '', ?, ?, ?, ?)`, eventNo, e.no, f.dueMS, f.createdMS, f.replayOf, first, boolean(f.urgent))
	t.wake = true
	t.noteDue(e.no, f.dueMS)
	return id, err
}

// Finish ends a claim and stores its result.
func (s *Store) Finish(ctx context.Context, d webhook.Delivery, r webhook.Result) error {
	state, err := stateNumber(r.State)
	if err != nil {
		return err
	}
	if s.isClosed() {
		return errClosed()
	}
	h, err := s.beginFinish(d)
	if err != nil {
		return err
	}
	err = s.writeLater(ctx, func(t *tx) error {
		due, done, attempt := r.DueMS, int64(0), h.attempt
		if state != statePending {
			due, done = 0, max(r.AtMS, 1)
		}
		if r.Untried {
			attempt--
		}
		n, _, err := t.exec("finish delivery", `UPDATE delivery SET state = ?, due_ms = ?, reason = ?, done_ms = ?, attempt = ?, fence = ?, urgent = 0
			WHERE id = ? AND state = 0`, state, due, r.Reason, done, int64(attempt), d.Fence, d.ID)
		if err != nil {
			return err
		}
		if n != 1 {
			return staleClaim(d)
		}
		if !r.Untried {
			if err := t.insertAttempt(d, r.Try); err != nil {
				return err
			}
		}
		if state == statePending {
			t.noteDue(h.endpoint, due)
		}
		t.after = append(t.after, func() { s.endClaim(d, false) })
		return t.conclude(h.endpoint, d, r)
	})
	if err != nil {
		s.endClaim(d, !fault.Is(err, fault.Conflict))
	}
	return err
}

func (t *tx) insertAttempt(d webhook.Delivery, try webhook.Attempt) error {
	resp, truncated := try.Response, try.Truncated
	if len(resp) > webhook.MaxResponse {
		resp, truncated = resp[:webhook.MaxResponse], true
	}
	detail, err := webhook.EncodeDetail(try.Detail)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "the store failed")
	}
	_, _, err = t.exec("insert attempt", `INSERT INTO attempt (delivery_id, n, fence, started_ms, duration_ms, status, error_class, error, response, truncated, detail)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, d.ID, int64(try.N), d.Fence, try.StartedMS, try.DurationMS, int64(try.Status),
		try.ErrorClass, try.Error, resp, boolean(truncated), detail)
	return err
}

func staleClaim(d webhook.Delivery) error {
	return fault.New(fault.Conflict, "delivery %d was claimed again or closed since claim %d", d.ID, d.Fence)
}

// noteDue notes when a delivery will be due for an endpoint, by its row, once the transaction is
// committed.
func (t *tx) noteDue(no, ms int64) {
	if t.dues == nil {
		t.dues = map[int64]int64{}
	}
	if was, ok := t.dues[no]; !ok || ms < was {
		t.dues[no] = ms
	}
}

// Release ends a claim that was not used.
func (s *Store) Release(_ context.Context, d webhook.Delivery) error {
	if s.isClosed() {
		return errClosed()
	}
	h, err := s.beginFinish(d)
	if err != nil {
		return err
	}
	s.endClaim(d, false)
	s.noteDue(map[int64]int64{h.endpoint: h.due}, h.urgent)
	s.wake()
	return nil
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
	ids := make([]int64, 0, len(claimed))
	for id := range claimed {
		ids = append(ids, id)
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return b, fault.Wrap(fault.Internal, err, "the store failed")
	}
	err = s.readers.do(ctx, func(c *conn) error {
		// The planner would use the index of lists, which holds everything that was ever sent.
		pending, err := c.number("SELECT count(*) FROM delivery INDEXED BY delivery_due WHERE state = 0")
		if err != nil {
			return err
		}
		dead, err := c.number("SELECT count(*) FROM delivery INDEXED BY delivery_dead WHERE state = 2")
		if err != nil {
			return err
		}
		b.Pending, b.Dead = int(pending), int(dead)
		// By endpoint, with the indexes that claims use: an index of its own would be one more
		// write for each delivery. A delivery that has not been tried is due when it was first due.
		untried, err := c.number(`SELECT min(oldest) FROM (SELECT (SELECT d.due_ms FROM delivery d WHERE d.endpoint_no = e.no AND (d.attempt > 0) = 0 AND d.state = 0
			ORDER BY d.due_ms LIMIT 1) AS oldest FROM endpoint e)`)
		if err != nil {
			return err
		}
		tried, err := c.number(`SELECT min(oldest) FROM (SELECT (SELECT CASE d.first_ms WHEN 0 THEN d.created_ms ELSE d.first_ms END FROM delivery d INDEXED BY delivery_first
			WHERE d.endpoint_no = e.no AND d.state = 0 AND d.attempt > 0 ORDER BY CASE d.first_ms WHEN 0 THEN d.created_ms ELSE d.first_ms END LIMIT 1) AS oldest FROM endpoint e)`)
		if err != nil {
			return err
		}
		b.OldestPending = earlier(untried, tried)
		for retry := int64(0); retry <= 1; retry++ {
			at, err := c.number(`SELECT min(oldest) FROM (SELECT (SELECT d.due_ms FROM delivery d WHERE d.endpoint_no = e.no AND (d.attempt > 0) = ? AND d.state = 0
				AND d.id NOT IN (SELECT value FROM json_each(?)) ORDER BY d.due_ms LIMIT 1) AS oldest FROM endpoint e)`, retry, string(list))
			if err != nil {
				return err
			}
			b.OldestDue = earlier(b.OldestDue, at)
		}
		return c.each("SELECT id FROM delivery WHERE state = 0 AND id IN (SELECT value FROM json_each(?))", []driver.Value{string(list)}, func(row []driver.Value) error {
			b.OldestDue = earlier(b.OldestDue, claimed[integer(row[0])].until)
			return nil
		})
	})
	return b, classify(err, "count deliveries")
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
