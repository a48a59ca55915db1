package sqlite

import (
	"context"
	"math"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
	"github.com/heardlog/heardlog/webhook"
)

const nothingDue = math.MaxInt64

// firstDue is when the first attempt of a delivery was due.
const firstDue = "CASE first_ms WHEN 0 THEN created_ms ELSE first_ms END"

// candidate is an endpoint that may have due deliveries.
type candidate struct {
	*endpoint
	webhook.Waiting
	changes int // of endpoint.due before the database was read
	limit   int // how many to read
}

// candidates returns the enabled endpoints that may have due deliveries, by row.
func (s *Store) candidates(l webhook.Look) map[int64]*candidate {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[int64]*candidate{}
	for _, e := range s.endpoints {
		if e.due > l.NowMS {
			continue
		}
		if n, any := l.Reads(e.Endpoint); any {
			out[e.no] = &candidate{endpoint: e, Waiting: webhook.Waiting{Endpoint: e.Endpoint}, changes: e.changes, limit: n}
		}
	}
	return out
}

// Waiting implements webhook.Queue.
func (s *Store) Waiting(ctx context.Context, l webhook.Look) (list []webhook.Waiting, err error) {
	of := s.candidates(l)
	err = s.db.ReadNow(ctx, "look for due deliveries", func(r *dbfile.Conn) error {
		claimed, err := runningClaims(r, l.NowMS)
		if err != nil {
			return err
		}
		if l.Tests {
			if err := readTests(r, of, l.NowMS); err != nil {
				return err
			}
		}
		for no, c := range of {
			if c.limit > 0 {
				if err := s.readDue(r, no, c, l.NowMS); err != nil {
					return err
				}
			}
			if c.Claimed = claimed[no]; len(c.Due)+len(c.Tests) > 0 {
				list = append(list, c.Waiting)
			}
		}
		return nil
	})
	return list, err
}

// readTests adds the tests that are due.
func readTests(r *dbfile.Conn, of map[int64]*candidate, nowMS int64) error {
	return r.Each("SELECT id, due_ms, endpoint_no FROM delivery INDEXED BY delivery_urgent WHERE state = 0 AND urgent = 1 ORDER BY id LIMIT ?+0", []any{int64(sweepRows)}, func(row dbfile.Row) error {
		if c := of[row.Int(2)]; c != nil && row.Int(1) <= nowMS {
			c.Tests = append(c.Tests, webhook.Due{ID: row.Int(0), DueMS: row.Int(1)})
		}
		return nil
	})
}

// readDue adds what an endpoint could be sent. If that is nothing, it notes when the next delivery
// will be due.
func (s *Store) readDue(r *dbfile.Conn, no int64, c *candidate, nowMS int64) (err error) {
	next := int64(nothingDue)
	for retry := int64(0); retry <= 1 && len(c.Due) < c.limit; retry++ {
		// The first row is read even if it is not due.
		err := r.Each(`SELECT id, due_ms FROM delivery WHERE endpoint_no = ? AND (attempt > 0) = ? AND state = 0 ORDER BY due_ms, id LIMIT ?+0`,
			[]any{no, retry, int64(c.limit - len(c.Due))}, func(row dbfile.Row) error {
				if at := row.Int(1); at <= nowMS {
					c.Due = append(c.Due, webhook.Due{ID: row.Int(0), DueMS: at, Retry: retry == 1})
				} else {
					next = min(next, at)
				}
				return nil
			})
		if err != nil {
			return err
		}
	}
	if len(c.Due) == 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.changes == c.endpoint.changes {
			c.endpoint.due = next
		}
	}
	return nil
}

// runningClaims counts the claims whose lease runs, by the row of their endpoint.
func runningClaims(r *dbfile.Conn, nowMS int64) (map[int64]int, error) {
	out := map[int64]int{}
	err := r.Each("SELECT endpoint_no FROM delivery INDEXED BY delivery_claimed WHERE state = 0 AND claimed = 1 AND due_ms > ?", []any{nowMS}, func(row dbfile.Row) error {
		out[row.Int(0)]++
		return nil
	})
	return out, err
}

// noteDue notes when a committed delivery is due, by the row of its endpoint.
func (s *Store) noteDue(no, ms int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.index.byNo[no]; e != nil {
		e.due = min(e.due, ms)
		e.changes++
	}
}

// Claim implements webhook.Queue. Bodies are read after the transaction, for which others wait.
func (s *Store) Claim(ctx context.Context, t webhook.Taking) (out []webhook.Delivery, err error) {
	var events []int64
	err = s.write(ctx, "claim deliveries", func(x *tx) (err error) {
		out, events, err = x.take(t)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = s.db.ReadNow(ctx, "read claimed deliveries", func(r *dbfile.Conn) error {
		for i, no := range events {
			row, err := r.First("SELECT body FROM event WHERE no = ?", no)
			if err != nil {
				return err
			}
			if row != nil { // otherwise it was erased, and its result will be refused
				out[i].Body = row.Blob(0)
			}
		}
		return nil
	})
	if err != nil {
		for _, d := range out {
			_ = webhook.Release(context.WithoutCancel(ctx), s, d)
		}
		return nil, err
	}
	return out, nil
}

// take claims deliveries, and returns them without their bodies and the rows of their events.
func (t *tx) take(c webhook.Taking) (out []webhook.Delivery, events []int64, err error) {
	until, bytes := c.NowMS+max(int64(c.Lease/time.Millisecond), 1), int64(0)
	claimed, err := runningClaims(t.Conn, c.NowMS)
	if err != nil {
		return nil, nil, err
	}
	for _, d := range c.List {
		row, err := t.Conn.First(`SELECT d.attempt, d.fence, e.id, e.type, e.project, e.agent_id, e.created_ms,
			CASE d.first_ms WHEN 0 THEN d.created_ms ELSE d.first_ms END, length(e.body), e.no, d.endpoint_no
			FROM delivery d JOIN event e ON e.no = d.event_no WHERE d.id = ? AND d.state = 0 AND d.due_ms <= ?`, d.ID, c.NowMS)
		if err != nil {
			return nil, nil, err
		}
		if row == nil {
			continue
		}
		e := t.live(row.Int(10))
		if e == nil || e.Disabled || d.Most > 0 && claimed[e.no] >= d.Most {
			continue
		}
		if bytes += row.Int(8); c.Bytes > 0 && bytes > c.Bytes && len(out) > 0 {
			break
		}
		out = append(out, webhook.Delivery{
			ID: d.ID, Attempt: int(row.Int(0)) + 1, Fence: row.Int(1) + 1, EventID: row.Text(2), Type: int(row.Int(3)), Project: row.Text(4), AgentID: row.Text(5),
			CreatedMS: row.Int(6), FirstDueMS: row.Int(7), Endpoint: *e.Endpoint, Urgent: d.Urgent,
		})
		events, claimed[e.no] = append(events, row.Int(9)), claimed[e.no]+1
		if _, err := t.Exec("UPDATE delivery SET due_ms = ?, attempt = attempt + 1, fence = fence + 1, urgent = 0, claimed = 1 WHERE id = ?", until, d.ID); err != nil {
			return nil, nil, err
		}
	}
	return out, events, nil
}

// endClaims releases the claims of an earlier process: its attempts have ended with it.
func (s *Store) endClaims(ctx context.Context) error {
	return s.write(ctx, "end claims", func(t *tx) error {
		_, err := t.Exec("UPDATE delivery SET due_ms = " + firstDue + ", attempt = attempt - 1, claimed = 0 WHERE state = 0 AND claimed = 1")
		return err
	})
}

// claimed returns the row of the endpoint of a claimed delivery. It fails with fault.Conflict if
// the claim has ended.
func (t *tx) claimed(d webhook.Delivery) (endpoint int64, err error) {
	row, err := t.Conn.First("SELECT endpoint_no FROM delivery WHERE id = ? AND fence = ? AND state = 0 AND claimed = 1", d.ID, d.Fence)
	if err == nil && row == nil {
		err = fault.New(fault.Conflict, "delivery %d was claimed again or closed since claim %d", d.ID, d.Fence)
	}
	if err != nil {
		return 0, err
	}
	return row.Int(0), nil
}
