package sqlite

import (
	"context"
	"slices"
	"sort"
	"time"

	"github.com/heardlog/heardlog/store/sqlite/dbfile"
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
	if c.Limit <= 0 && c.Urgent <= 0 {
		return nil, nil
	}
	s.claims.claiming.Lock()
	defer s.claims.claiming.Unlock()
	l := s.claimState(c)
	var out []webhook.Delivery
	err := s.db.ReadNow(ctx, "claim deliveries", func(r *dbfile.Conn) error {
		urgent, err := dueTests(r, c, l)
		if err != nil {
			return err
		}
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
		return nil, err
	}
	return out, nil
}

// dueTests returns the tests that are sent beyond the limits.
func dueTests(r *dbfile.Conn, c webhook.Claim, l claimState) (list []due, err error) {
	if c.Urgent <= 0 {
		return nil, nil
	}
	err = r.Each("SELECT id, due_ms, endpoint_no FROM delivery INDEXED BY delivery_urgent WHERE state = 0 AND urgent = 1 ORDER BY id LIMIT ?+0", []any{int64(sweepRows)}, func(row dbfile.Row) error {
		id, at, e := row.Int(0), row.Int(1), l.byNo[row.Int(2)]
		if _, claimed := l.claimed[id]; !claimed && e != nil && at <= c.NowMS && len(list) < c.Urgent {
			list = append(list, due{id: id, at: at, urgent: true, e: e})
		}
		return nil
	})
	return list, err
}

// dueOf returns the other deliveries to be sent, in order.
func (s *Store) dueOf(r *dbfile.Conn, c webhook.Claim, l claimState, but []due) ([]due, error) {
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
	shares := c.Shares()
	list = slices.DeleteFunc(list, func(d due) bool { return !shares(d.e.to) })
	return list[:min(len(list), max(c.Limit, 0))], nil
}

// dueAt returns what an endpoint may be sent now. If that is nothing, it sets when the next
// delivery will be due.
func (s *Store) dueAt(r *dbfile.Conn, e *candidate, c webhook.Claim, l claimState) ([]due, error) {
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
func (s *Store) dueRows(r *dbfile.Conn, e *candidate, l claimState, retry, byMS int64, limit int) ([]due, error) {
	var list []due
	// Claimed deliveries are among the rows, which do not show it.
	err := r.Each(`SELECT id, due_ms FROM delivery WHERE endpoint_no = ? AND (attempt > 0) = ? AND due_ms <= ? AND state = 0
		ORDER BY due_ms, id LIMIT ?+0`, []any{e.no, retry, byMS, int64(limit + e.held)}, func(row dbfile.Row) error {
		if _, claimed := l.claimed[row.Int(0)]; !claimed && len(list) < limit {
			list = append(list, due{id: row.Int(0), at: row.Int(1), retry: retry == 1, e: e})
		}
		return nil
	})
	return list, err
}

// take claims deliveries and reads them, until their bodies reach the limit of the call. It passes
// over those that were canceled or erased meanwhile.
func (s *Store) take(r *dbfile.Conn, c webhook.Claim, l claimState, list []due) (out []webhook.Delivery, err error) {
	until := c.NowMS + max(int64(c.Lease/time.Millisecond), 1)
	bytes := int64(0)
	for _, d := range list {
		row, err := r.First(`SELECT d.attempt, d.fence, e.id, e.type, e.project, e.agent_id, e.created_ms,
			CASE d.first_ms WHEN 0 THEN d.created_ms ELSE d.first_ms END, length(e.body), e.no
			FROM delivery d JOIN event e ON e.no = d.event_no WHERE d.id = ? AND d.state = 0`, d.id)
		if err != nil {
			return out, err
		}
		if row == nil {
			s.dropClaim(d.id)
			continue
		}
		if bytes += row.Int(8); c.Bytes > 0 && bytes > c.Bytes && len(out) > 0 {
			break
		}
		body, err := r.First("SELECT body FROM event WHERE no = ?", row[9])
		if err != nil {
			return out, err
		}
		if body == nil {
			continue
		}
		h, ok := s.claim(d, l.claimed[d.id], row.Int(1), until, int(row.Int(0)))
		if !ok {
			continue
		}
		out = append(out, webhook.Delivery{
			ID: d.id, Attempt: h.attempt, Fence: h.fence, EventID: row.Text(2), Type: int(row.Int(3)), Project: row.Text(4), AgentID: row.Text(5),
			CreatedMS: row.Int(6), FirstDueMS: row.Int(7), Body: body.Blob(0), Endpoint: *d.e.to, Urgent: d.urgent,
		})
	}
	return out, nil
}
