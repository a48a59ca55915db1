package sqlite

import (
	"context"
	"database/sql/driver"
	"sort"
	"time"

	"github.com/heardlog/heardlog/webhook"
)

// due is a delivery that can be claimed.
type due struct {
	id, at int64
	retry  bool
	urgent bool
	e      *candidate
}

// Claim claims due deliveries. It only reads the database: see claims.
func (s *Store) Claim(ctx context.Context, c webhook.Claim) ([]webhook.Delivery, error) {
	if c.Limit <= 0 && (c.Urgent <= 0 || !s.urgent.Load()) {
		return nil, nil
	}
	s.claims.claiming.Lock()
	defer s.claims.claiming.Unlock()
	l := s.claimState(c)
	var out []webhook.Delivery
	var idle []int64
	err := s.readers.with(ctx, func(r *conn) error {
		urgent, not, err := s.dueTests(r, c, l)
		if err != nil {
			return err
		}
		idle = not
		list, err := s.dueOf(r, c, l, urgent)
		if err != nil {
			return err
		}
		out, err = s.take(r, c, l, append(urgent, list...))
		return err
	})
	if err != nil {
		for _, d := range out {
			_ = s.Release(context.WithoutCancel(ctx), d)
		}
		return nil, classify(err, "claim deliveries")
	}
	if len(idle) > 0 {
		err := s.write(ctx, func(t *tx) error {
			for _, id := range idle {
				if _, _, err := t.exec("update delivery", "UPDATE delivery SET urgent = 0 WHERE id = ?", id); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil && len(out) == 0 {
			return nil, err
		}
	}
	return out, nil
}

// dueTests returns the tests that are sent beyond the limits, and the IDs of those whose endpoint
// was disabled or deleted since. These are to be treated like any other delivery.
func (s *Store) dueTests(r *conn, c webhook.Claim, l claimState) (list []due, idle []int64, err error) {
	if c.Urgent <= 0 || !s.urgent.Load() {
		return nil, nil, nil
	}
	type row struct{ id, at, no int64 }
	var rows []row
	err = r.each("SELECT id, due_ms, endpoint_no FROM delivery INDEXED BY delivery_urgent WHERE state = 0 AND urgent = 1 ORDER BY id LIMIT ?+0", []driver.Value{int64(sweepRows)}, func(v []driver.Value) error {
		rows = append(rows, row{integer(v[0]), integer(v[1]), integer(v[2])})
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if len(rows) == 0 {
		s.noTests(l.tests)
	}
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	for _, v := range rows {
		if _, claimed := l.claimed[v.id]; claimed {
			continue
		}
		e := l.index.byNo[v.no]
		switch {
		case e == nil || e.Disabled:
			idle = append(idle, v.id)
		case v.at <= c.NowMS && len(list) < c.Urgent:
			list = append(list, due{id: v.id, at: v.at, urgent: true, e: &candidate{endpoint: e, to: e.Endpoint}})
		}
	}
	return list, idle, nil
}

// dueOf returns the other deliveries to be sent, in order.
func (s *Store) dueOf(r *conn, c webhook.Claim, l claimState, but []due) ([]due, error) {
	taken := map[int64]bool{}
	for _, d := range but {
		taken[d.id] = true
	}
	var list []due
	for _, e := range l.list {
		found, err := s.dueAt(r, e, c, l)
		if err != nil {
			return nil, err
		}
		for _, d := range found {
			if !taken[d.id] {
				list = append(list, d)
			}
		}
	}
	sort.SliceStable(list, func(i, j int) bool {
		a, b := list[i], list[j]
		if a.at != b.at {
			return a.at < b.at
		}
		return a.id < b.id
	})
	webhook.Fair(c, list, func(d due) (*webhook.Endpoint, bool) { return d.e.to, d.retry })
	return list[:min(len(list), max(c.Limit, 0))], nil
}

// dueAt returns what an endpoint may be sent now. If that is nothing, it sets when the next
// delivery will be due.
func (s *Store) dueAt(r *conn, e *candidate, c webhook.Claim, l claimState) ([]due, error) {
	limit := c.Limit
	if c.Room != nil {
		limit = min(limit, c.Room(e.to))
	}
	if most := e.to.InFlight(c.PerEndpoint); most > 0 {
		flying := e.flying
		if c.Ended != nil {
			flying -= min(c.Ended(e.to), flying)
		}
		limit = min(limit, most-flying)
	}
	if limit <= 0 {
		return nil, nil
	}
	var list []due
	for retry := int64(0); retry <= 1 && len(list) < limit; retry++ {
		found, err := s.dueRows(r, e, l, retry, c.NowMS, limit-len(list))
		if err != nil {
			return nil, err
		}
		if retry == 1 {
			found = append(found, e.again...)
			sort.SliceStable(found, func(i, j int) bool { return found[i].at < found[j].at })
		}
		list = append(list, found[:min(len(found), limit-len(list))]...)
	}
	if len(list) > 0 {
		return list, nil
	}
	next := e.expires
	for retry := int64(0); retry <= 1; retry++ {
		found, err := s.dueRows(r, e, l, retry, nothingDue, 1)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			next = min(next, found[0].at)
		}
	}
	s.setDue(e, next)
	return nil, nil
}

// dueRows returns first or further tries of an endpoint that are due by a time and not claimed.
func (s *Store) dueRows(r *conn, e *candidate, l claimState, retry, byMS int64, limit int) ([]due, error) {
	var list []due
	// Claimed deliveries are among the rows, which do not show it.
	err := r.each(`SELECT id, due_ms FROM delivery WHERE endpoint_no = ? AND (attempt > 0) = ? AND due_ms <= ? AND state = 0
		ORDER BY due_ms, id LIMIT ?+0`, []driver.Value{e.no, retry, byMS, int64(limit + e.held)}, func(row []driver.Value) error {
		if _, claimed := l.claimed[integer(row[0])]; !claimed && len(list) < limit {
			list = append(list, due{id: integer(row[0]), at: integer(row[1]), retry: retry == 1, e: e})
		}
		return nil
	})
	return list, err
}

// take claims deliveries and reads them, until their bodies reach the limit of the call. It passes
// over those that were canceled or erased meanwhile.
func (s *Store) take(r *conn, c webhook.Claim, l claimState, list []due) (out []webhook.Delivery, err error) {
	until := c.NowMS + max(int64(c.Lease/time.Millisecond), 1)
	bytes := int64(0)
	for _, d := range list {
		row, err := r.first(`SELECT d.attempt, d.fence, e.id, e.type, e.project, e.agent_id, e.created_ms,
			CASE d.first_ms WHEN 0 THEN d.created_ms ELSE d.first_ms END, length(e.body), e.no
			FROM delivery d JOIN event e ON e.no = d.event_no WHERE d.id = ? AND d.state = 0`, d.id)
		if err != nil {
			return out, err
		}
		if row == nil {
			s.dropClaim(d.id)
			continue
		}
		if bytes += integer(row[8]); c.Bytes > 0 && bytes > c.Bytes && len(out) > 0 {
			break
		}
		body, err := r.first("SELECT body FROM event WHERE no = ?", row[9])
		if err != nil {
			return out, err
		}
		if body == nil {
			continue
		}
		h, ok := s.claim(d, l.claimed[d.id], integer(row[1]), until, int(integer(row[0])))
		if !ok {
			continue
		}
		out = append(out, webhook.Delivery{
			ID: d.id, Attempt: h.attempt, Fence: h.fence, EventID: text(row[2]), Type: int(integer(row[3])), Project: text(row[4]), AgentID: text(row[5]),
			CreatedMS: integer(row[6]), FirstDueMS: integer(row[7]), Body: blob(body[0]), Endpoint: *d.e.to, Urgent: d.urgent,
		})
	}
	return out, nil
}
