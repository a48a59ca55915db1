package sqlite

import (
	"context"
	"database/sql/driver"
	"slices"
	"sort"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/webhook"
)

// The numbers of delivery.state.
const (
	statePending   = 0
	stateDelivered = 1
	stateDead      = 2
	stateCanceled  = 3
)

func stateNumber(s webhook.DeliveryState) (int64, error) {
	switch s {
	case webhook.Pending:
		return statePending, nil
	case webhook.Delivered:
		return stateDelivered, nil
	case webhook.Dead:
		return stateDead, nil
	case webhook.Canceled:
		return stateCanceled, nil
	}
	return 0, fault.New(fault.Internal, "unknown delivery state %q", string(s))
}

func stateName(n int64) webhook.DeliveryState {
	switch n {
	case statePending:
		return webhook.Pending
	case stateDelivered:
		return webhook.Delivered
	case stateCanceled:
		return webhook.Canceled
	}
	return webhook.Dead
}

// insertEvent puts an event in the outbox with a delivery for each endpoint of its project that is to have it; none, and nothing is stored.
func (g *group) insertEvent(agentNo int64, m webhook.Event, to func(*endpoint) bool) error {
	var eventNo int64
	for _, e := range g.s.index.byProject[m.Project] {
		if !to(e) {
			continue
		}
		if eventNo == 0 {
			_, id, err := g.exec("insert event", "INSERT INTO event (id, agent_no, agent_id, project, type, created_ms, body) VALUES (?, ?, ?, ?, ?, ?, ?)",
				m.ID, agentNo, m.AgentID, m.Project, int64(m.Type), m.CreatedMS, m.Body)
			if err != nil {
				return err
			}
			eventNo = id
			g.pages += 5 + len(m.Body)/4096
		}
		if _, err := g.insertDelivery(eventNo, e, fresh{dueMS: m.CreatedMS, createdMS: m.CreatedMS, urgent: m.Type == webhook.TypeTest}); err != nil {
			return err
		}
	}
	return nil
}

// fresh is what a new delivery is made of beside its event and endpoint.
type fresh struct {
	dueMS, createdMS int64
	replayOf         int64
	urgent           bool
}

// insertDelivery makes a delivery and gives its id.
func (g *group) insertDelivery(eventNo int64, e *endpoint, f fresh) (int64, error) {
	first := int64(0)
	if f.dueMS != f.createdMS {
		first = f.dueMS
	}
	if f.urgent {
		n, err := g.w.number("SELECT count(*) FROM delivery WHERE state = 0 AND urgent = 1 AND endpoint_no = ?", e.no)
		if err != nil {
			return 0, classify(err, "count tests")
		}
		if f.urgent = n < webhook.MaxUrgent; f.urgent {
			g.s.urgent.Store(true)
		}
	}
	_, id, err := g.exec("insert delivery", `INSERT INTO delivery (event_no, endpoint_no, state, attempt, due_ms, fence, claimed, reason, created_ms, replay_of, first_ms, urgent)
		VALUES (?, ?, 0, 0, ?, 0, 0, '', ?, ?, ?, ?)`, eventNo, e.no, f.dueMS, f.createdMS, f.replayOf, first, boolean(f.urgent))
	g.pages += 5
	g.wake = true
	e.dueAt(f.dueMS)
	return id, err
}

// due is a delivery that could be claimed.
type due struct {
	id, at int64
	retry  bool
	urgent bool
	e      *endpoint
}

// Claim takes due deliveries.
func (s *Store) Claim(ctx context.Context, c webhook.Claim) ([]webhook.Delivery, error) {
	if c.Limit <= 0 && (c.Urgent <= 0 || !s.urgent.Load()) {
		return nil, nil
	}
	var out []claimed
	err := s.doLater(ctx, func(g *group) error {
		out = nil
		urgent, err := g.urgentAt(c)
		if err != nil {
			return err
		}
		var list []due
		for _, e := range s.endpoints {
			if c.Limit <= 0 || e.Disabled || e.due > c.NowMS {
				continue
			}
			found, err := g.dueAt(e, c)
			if err != nil {
				return err
			}
			list = append(list, found...)
		}
		list = slices.DeleteFunc(list, func(d due) bool {
			return slices.ContainsFunc(urgent, func(u due) bool { return u.id == d.id })
		})
		sort.SliceStable(list, func(i, j int) bool {
			a, b := list[i], list[j]
			if a.at != b.at {
				return a.at < b.at
			}
			return a.id < b.id
		})
		webhook.Fair(c, list, func(d due) (*webhook.Endpoint, bool) { return &d.e.Endpoint, d.retry })
		bytes := int64(0)
		for _, d := range append(urgent, list[:min(len(list), max(c.Limit, 0))]...) {
			size, err := g.w.number("SELECT length(e.body) FROM delivery d JOIN event e ON e.no = d.event_no WHERE d.id = ?", d.id)
			if err != nil {
				return classify(err, "read event")
			}
			if bytes += size; c.Bytes > 0 && bytes > c.Bytes && len(out) > 0 {
				break
			}
			one, err := g.claim(d, c)
			if err != nil {
				return err
			}
			out = append(out, one)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s.bodies(ctx, out)
}

// bodies reads what claimed deliveries send, beside the committer: a body may be of many MB. A claim whose body is gone with its agent is none; where the body
// cannot be read, what was claimed is given back.
func (s *Store) bodies(ctx context.Context, list []claimed) ([]webhook.Delivery, error) {
	var out []webhook.Delivery
	for _, d := range list {
		err := s.readers.with(ctx, func(c *conn) error {
			row, err := c.first("SELECT body FROM event WHERE no = ?", d.event)
			if err == nil && row != nil {
				d.Body = blob(row[0])
				out = append(out, d.Delivery)
			}
			return err
		})
		if err != nil {
			for _, d := range list {
				_ = s.Release(context.WithoutCancel(ctx), d.Delivery) // else it is due again when the lease is over
			}
			return nil, classify(err, "read event")
		}
	}
	return out, nil
}

// claimed is a claim whose body is still to be read.
type claimed struct {
	webhook.Delivery
	event int64
}

// urgentAt gives the tests that go beside the limits. Those whose endpoint was disabled or deleted since become like any other delivery.
func (g *group) urgentAt(c webhook.Claim) ([]due, error) {
	if c.Urgent <= 0 || !g.s.urgent.Load() {
		return nil, nil
	}
	var out []due
	var idle []int64
	rows := 0
	err := g.w.each("SELECT id, due_ms, endpoint_no FROM delivery INDEXED BY delivery_urgent WHERE state = 0 AND urgent = 1 ORDER BY id LIMIT ?+0", []driver.Value{int64(sweepRows)}, func(row []driver.Value) error {
		rows++
		d := due{id: integer(row[0]), at: integer(row[1]), urgent: true, e: g.live(integer(row[2]))}
		switch {
		case d.e == nil || d.e.Disabled:
			idle = append(idle, d.id)
		case d.at <= c.NowMS && len(out) < c.Urgent:
			out = append(out, d)
		}
		return nil
	})
	if err != nil {
		return nil, classify(err, "look for tests")
	}
	if rows == 0 {
		g.s.urgent.Store(false)
	}
	for _, id := range idle {
		if _, _, err := g.exec("update delivery", "UPDATE delivery SET urgent = 0 WHERE id = ?", id); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// dueAt looks for what an endpoint may be sent now; where there is nothing it notes when there will be.
func (g *group) dueAt(e *endpoint, c webhook.Claim) ([]due, error) {
	limit := int64(c.Limit)
	if c.Room != nil {
		limit = min(limit, int64(c.Room(&e.Endpoint)))
	}
	if limit <= 0 {
		return nil, nil
	}
	if most := e.InFlight(c.PerEndpoint); most > 0 {
		flying, err := g.w.number("SELECT count(*) FROM delivery WHERE endpoint_no = ? AND state = 0 AND claimed = 1 AND due_ms > ?", e.no, c.NowMS)
		if err != nil {
			return nil, classify(err, "count claims")
		}
		limit = min(limit, int64(most)-flying)
	}
	var list []due
	for retry := int64(0); retry <= 1 && int64(len(list)) < limit; retry++ {
		err := g.w.each(`SELECT id, due_ms FROM delivery WHERE endpoint_no = ? AND (attempt > 0) = ? AND due_ms <= ? AND state = 0
			ORDER BY due_ms, id LIMIT ?+0`, []driver.Value{e.no, retry, c.NowMS, limit - int64(len(list))}, func(row []driver.Value) error {
			list = append(list, due{id: integer(row[0]), at: integer(row[1]), retry: retry == 1, e: e})
			return nil
		})
		if err != nil {
			return nil, classify(err, "look for due deliveries")
		}
	}
	if len(list) == 0 && limit > 0 {
		next, err := g.nextDue(e.no)
		if err != nil {
			return nil, err
		}
		e.due = next
	}
	return list, nil
}

// nextDue gives the earliest due time of an endpoint's pending deliveries.
func (g *group) nextDue(no int64) (int64, error) { return nextDue(g.w, no) }

func nextDue(c *conn, no int64) (int64, error) {
	next := int64(nothingDue)
	for retry := int64(0); retry <= 1; retry++ {
		row, err := c.first("SELECT due_ms FROM delivery WHERE endpoint_no = ? AND (attempt > 0) = ? AND state = 0 ORDER BY due_ms LIMIT 1", no, retry)
		if err != nil {
			return 0, classify(err, "look for due deliveries")
		}
		if row != nil {
			next = min(next, integer(row[0]))
		}
	}
	return next, nil
}

func (g *group) claim(d due, c webhook.Claim) (claimed, error) {
	until := c.NowMS + max(int64(c.Lease/time.Millisecond), 1)
	if _, _, err := g.exec("claim delivery", "UPDATE delivery SET due_ms = ?, attempt = attempt + 1, fence = fence + 1, claimed = 1, urgent = 0 WHERE id = ?", until, d.id); err != nil {
		return claimed{}, err
	}
	g.pages += 4
	row, err := g.w.first(`SELECT d.attempt, d.fence, e.id, e.type, e.project, e.agent_id, d.event_no, e.created_ms,
		CASE d.first_ms WHEN 0 THEN d.created_ms ELSE d.first_ms END
		FROM delivery d JOIN event e ON e.no = d.event_no WHERE d.id = ?`, d.id)
	if err == nil && row == nil {
		err = errNoRow
	}
	if err != nil {
		return claimed{}, classify(err, "read delivery")
	}
	return claimed{event: integer(row[6]), Delivery: webhook.Delivery{
		ID: d.id, Attempt: int(integer(row[0])), Fence: integer(row[1]), EventID: text(row[2]), Type: int(integer(row[3])),
		Project: text(row[4]), AgentID: text(row[5]), CreatedMS: integer(row[7]), FirstDueMS: integer(row[8]), Endpoint: d.e.Endpoint, Urgent: d.urgent,
	}}, nil
}

// Finish ends a claim with what came of it.
func (s *Store) Finish(ctx context.Context, d webhook.Delivery, r webhook.Result) error {
	state, err := stateNumber(r.State)
	if err != nil {
		return err
	}
	return s.doLater(ctx, func(g *group) error {
		due, done := r.DueMS, int64(0)
		if state != statePending {
			due, done = 0, max(r.AtMS, 1)
		}
		n, _, err := g.exec("finish delivery", `UPDATE delivery SET state = ?, due_ms = ?, claimed = 0, reason = ?, done_ms = ?, attempt = attempt - ?
			WHERE id = ? AND fence = ? AND claimed = 1 AND state = 0`, state, due, r.Reason, done, boolean(r.Untried), d.ID, d.Fence)
		if err != nil {
			return err
		}
		if n != 1 {
			return staleClaim(d)
		}
		if !r.Untried {
			if err := g.insertAttempt(d, r.Try); err != nil {
				return err
			}
		}
		row, err := g.w.first("SELECT d.endpoint_no, e.agent_no FROM delivery d JOIN event e ON e.no = d.event_no WHERE d.id = ?", d.ID)
		if err == nil && row == nil {
			err = errNoRow
		}
		if err != nil {
			return classify(err, "read delivery")
		}
		if state == statePending {
			g.noteDue(integer(row[0]), due)
		}
		return g.conclude(integer(row[0]), integer(row[1]), d, r)
	})
}

func (g *group) insertAttempt(d webhook.Delivery, try webhook.Attempt) error {
	resp, truncated := try.Response, try.Truncated
	if len(resp) > webhook.MaxResponse {
		resp, truncated = resp[:webhook.MaxResponse], true
	}
	detail, err := encodeDetail(try.Detail)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "the store failed")
	}
	_, _, err = g.exec("insert attempt", `INSERT INTO attempt (delivery_id, n, fence, started_ms, duration_ms, status, error_class, error, response, truncated, detail)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, d.ID, int64(try.N), d.Fence, try.StartedMS, try.DurationMS, int64(try.Status),
		try.ErrorClass, try.Error, resp, boolean(truncated), detail)
	g.pages += 6 + len(resp)/4096
	return err
}

func staleClaim(d webhook.Delivery) error {
	return fault.New(fault.Conflict, "delivery %d was claimed again or closed since claim %d", d.ID, d.Fence)
}

// noteDue tells an endpoint, by its row, that something is due then.
func (g *group) noteDue(no, ms int64) {
	if e := g.live(no); e != nil {
		e.dueAt(ms)
	}
}

// Release gives a claim back unused.
func (s *Store) Release(ctx context.Context, d webhook.Delivery) error {
	return s.doLater(ctx, func(g *group) error {
		row, err := g.w.first("SELECT e.created_ms, d.endpoint_no FROM delivery d JOIN event e ON e.no = d.event_no WHERE d.id = ?", d.ID)
		if err != nil {
			return classify(err, "read delivery")
		}
		if row == nil {
			return staleClaim(d)
		}
		// Due at the event's own time: that is past, and so is "now" to every later claim, whatever clock it goes by.
		n, _, err := g.exec("release delivery", `UPDATE delivery SET due_ms = ?, attempt = attempt - 1, claimed = 0
			WHERE id = ? AND fence = ? AND claimed = 1 AND state = 0`, integer(row[0]), d.ID, d.Fence)
		if err != nil {
			return err
		}
		if n != 1 {
			return staleClaim(d)
		}
		g.pages += 3
		g.noteDue(integer(row[1]), integer(row[0]))
		g.wake = true
		return nil
	})
}

// Backlog counts what waits.
func (s *Store) Backlog(ctx context.Context) (webhook.Backlog, error) {
	var b webhook.Backlog
	err := s.readers.do(ctx, func(c *conn) error {
		// The planner would count by the index of lists, which holds everything that was ever sent.
		pending, err := c.number("SELECT count(*) FROM delivery INDEXED BY delivery_oldest WHERE state = 0")
		if err != nil {
			return err
		}
		dead, err := c.number("SELECT count(*) FROM delivery INDEXED BY delivery_dead WHERE state = 2")
		if err != nil {
			return err
		}
		b.Pending, b.Dead = int(pending), int(dead)
		if b.OldestDue, err = c.number("SELECT due_ms FROM delivery WHERE state = 0 ORDER BY due_ms LIMIT 1"); err != nil {
			return err
		}
		// By endpoint, as the index for lists has it: one of its own would be a write more for each delivery.
		b.OldestPending, err = c.number(`SELECT min(oldest) FROM (SELECT (SELECT d.created_ms FROM delivery d WHERE d.endpoint_no = e.no AND d.state = 0
			ORDER BY d.created_ms LIMIT 1) AS oldest FROM endpoint e)`)
		return err
	})
	return b, classify(err, "count deliveries")
}

// Woken receives when deliveries were committed.
func (s *Store) Woken() <-chan struct{} { return s.woken }
