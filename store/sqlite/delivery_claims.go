package sqlite

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/heardlog/heardlog/store/sqlite/dbfile"
	"github.com/heardlog/heardlog/store/statements"
	"github.com/heardlog/heardlog/webhook"
)

// claim is one delivery that a worker is sending. Claims are kept in memory only. One process owns
// the file, so a claim ends with its process in any case, and a row for each one costs a third of
// the deliveries per second. After a crash, what was claimed is due again as soon as the file is
// opened, with the same attempt number.
type claim struct {
	fence, until int64
	attempt      int
	endpoint     int64 // its row
	urgent       bool
	ending       bool // its result is being stored
}

// runs reports whether the delivery cannot be claimed again.
func (c claim) runs(nowMS int64) bool { return c.until > nowMS || c.ending }

// candidate is an endpoint that may have due deliveries, as it was before the database was read.
type candidate struct {
	*endpoint
	webhook.Waiting
	changes int           // of endpoint.due until then
	limit   int           // how many to read
	held    int           // claims, including those whose lease is over
	expires int64         // when the first lease ends
	again   []webhook.Due // deliveries whose lease is over
}

const nothingDue = math.MaxInt64

// candidates returns the enabled endpoints that may have due deliveries, by row, and the claims by
// delivery. A delivery whose result is committed later still counts as claimed.
func (s *Store) candidates(l webhook.Look) (map[int64]*candidate, map[int64]claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[int64]*candidate{}
	for _, e := range s.endpoints {
		if e.due > l.NowMS {
			continue
		}
		if n, any := l.Reads(e.Endpoint); any {
			out[e.no] = &candidate{endpoint: e, Waiting: webhook.Waiting{Endpoint: e.Endpoint}, changes: e.changes, limit: n, expires: nothingDue}
		}
	}
	for id, h := range s.claims {
		one := out[h.endpoint]
		switch {
		case s.index.byNo[h.endpoint] == nil && !h.runs(l.NowMS):
			// The endpoint was deleted, and the worker has not come back.
			delete(s.claims, id)
		case one == nil:
		case h.runs(l.NowMS):
			one.held, one.Claimed, one.expires = one.held+1, one.Claimed+1, min(one.expires, h.until)
		default:
			one.held, one.again = one.held+1, append(one.again, webhook.Due{ID: id, DueMS: h.until, Retry: true})
		}
	}
	return out, maps.Clone(s.claims)
}

// Waiting implements webhook.Queue.
func (s *Store) Waiting(ctx context.Context, l webhook.Look) (list []webhook.Waiting, err error) {
	of, claimed := s.candidates(l)
	err = s.db.ReadNow(ctx, "look for due deliveries", func(r *dbfile.Conn) error {
		if l.Tests {
			if err := readTests(r, of, claimed, l.NowMS); err != nil {
				return err
			}
		}
		for _, c := range of {
			if c.limit > 0 {
				if err := s.readDue(r, c, claimed, l.NowMS); err != nil {
					return err
				}
			}
			if len(c.Due)+len(c.Tests) > 0 {
				list = append(list, c.Waiting)
			}
		}
		return nil
	})
	return list, err
}

// readTests adds the tests that are due.
func readTests(r *dbfile.Conn, of map[int64]*candidate, claimed map[int64]claim, nowMS int64) error {
	return r.Each("SELECT id, due_ms, endpoint_no FROM delivery INDEXED BY delivery_urgent WHERE state = 0 AND urgent = 1 ORDER BY id LIMIT ?+0", []any{int64(sweepRows)}, func(row dbfile.Row) error {
		_, taken := claimed[row.Int(0)]
		if c := of[row.Int(2)]; c != nil && !taken && row.Int(1) <= nowMS {
			c.Tests = append(c.Tests, webhook.Due{ID: row.Int(0), DueMS: row.Int(1)})
		}
		return nil
	})
}

// readDue adds what an endpoint could be sent. If that is nothing, it notes when the next delivery
// will be due.
func (s *Store) readDue(r *dbfile.Conn, c *candidate, claimed map[int64]claim, nowMS int64) error {
	next := c.expires
	for retry := int64(0); retry <= 1 && len(c.Due) < c.limit; retry++ {
		var found []webhook.Due
		// The first row is read even if it is not due. Claimed deliveries are among the rows, which
		// do not show it.
		err := r.Each(`SELECT id, due_ms FROM delivery WHERE endpoint_no = ? AND (attempt > 0) = ? AND state = 0 ORDER BY due_ms, id LIMIT ?+0`,
			[]any{c.no, retry, int64(c.limit - len(c.Due) + c.held)}, func(row dbfile.Row) error {
				if _, taken := claimed[row.Int(0)]; taken {
					return nil
				}
				if at := row.Int(1); at <= nowMS {
					found = append(found, webhook.Due{ID: row.Int(0), DueMS: at, Retry: retry == 1})
				} else {
					next = min(next, at)
				}
				return nil
			})
		if err != nil {
			return err
		}
		if retry == 1 {
			found = append(found, c.again...)
			slices.SortStableFunc(found, func(a, b webhook.Due) int { return cmp.Compare(a.DueMS, b.DueMS) })
		}
		c.Due = append(c.Due, found[:min(len(found), c.limit-len(c.Due))]...)
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

// noteDue notes when a committed delivery is due, by the row of its endpoint.
func (s *Store) noteDue(no, ms int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.index.byNo[no]; e != nil {
		e.due = min(e.due, ms)
		e.changes++
	}
}

// Claim implements webhook.Queue. It only reads the database. Deliveries are claimed before they
// are read: the result of a claim that ended before was then stored before, so that no delivery
// that was sent is taken for one that waits.
func (s *Store) Claim(ctx context.Context, t webhook.Taking) (out []webhook.Delivery, err error) {
	type taken struct {
		webhook.Take
		claim, was claim
	}
	var list []*taken
	for _, d := range t.List {
		if h, was, ok := s.claim(d, t); ok {
			list = append(list, &taken{d, h, was})
		}
	}
	err = s.db.ReadNow(ctx, "claim deliveries", func(r *dbfile.Conn) error {
		bytes := int64(0)
		for _, d := range list {
			row, err := r.First(`SELECT d.attempt, d.fence, e.id, e.type, e.project, e.agent_id, e.created_ms,
				CASE d.first_ms WHEN 0 THEN d.created_ms ELSE d.first_ms END, coalesce(e.size, length(e.body)), e.no
				FROM delivery d JOIN event e ON e.no = d.event_no WHERE d.id = ? AND d.state = 0 AND d.due_ms <= ?`, d.ID, t.NowMS)
			if err != nil {
				return err
			}
			if row == nil { // canceled or erased meanwhile
				d.was = claim{}
				continue
			}
			if bytes += row.Int(8); t.Bytes > 0 && bytes > t.Bytes && len(out) > 0 {
				break
			}
			body, err := r.First("SELECT body FROM event WHERE no = ?", row[9])
			if err != nil {
				return err
			}
			if body == nil { // erased between the two statements
				d.was = claim{}
				continue
			}
			plain, err := statements.OpenEvent(s.sealer, row.Text(2), body.Blob(0))
			if err != nil {
				return err
			}
			one := webhook.Delivery{
				ID: d.ID, Attempt: int(row.Int(0)), Fence: row.Int(1), EventID: row.Text(2), Type: int(row.Int(3)), Project: row.Text(4), AgentID: row.Text(5),
				CreatedMS: row.Int(6), FirstDueMS: row.Int(7), Urgent: d.Urgent, Body: plain,
			}
			if s.fillClaim(&one, &d.claim) {
				out = append(out, one)
			}
		}
		return nil
	})
	if err != nil {
		out = nil
	}
	for _, d := range list {
		if !slices.ContainsFunc(out, func(o webhook.Delivery) bool { return o.ID == d.ID }) {
			s.undoClaim(d.ID, d.claim, d.was)
		}
	}
	return out, err
}

// claim claims a delivery, unless its claim runs or its endpoint has most claims. It also returns
// the claim that was there before, if its lease is over.
func (s *Store) claim(d webhook.Take, t webhook.Taking) (now, was claim, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.index.byProject[d.Endpoint.Project]
	i := slices.IndexFunc(of, func(e *endpoint) bool { return e.ID == d.Endpoint.ID })
	if was = s.claims[d.ID]; was.runs(t.NowMS) || i < 0 || of[i].Disabled {
		return claim{}, was, false
	}
	n := 0
	for _, h := range s.claims {
		if h.endpoint == of[i].no && h.runs(t.NowMS) {
			n++
		}
	}
	if d.Most > 0 && n >= d.Most {
		return claim{}, was, false
	}
	s.fence++
	now = claim{fence: s.fence, until: t.NowMS + max(int64(t.Lease/time.Millisecond), 1), attempt: was.attempt, endpoint: of[i].no, urgent: d.Urgent}
	s.claims[d.ID] = now
	return now, was, true
}

// fillClaim completes a claim from the row of its delivery: d has the attempt and the fence of the
// row, and gets those of the claim. It reports whether the claim still stands.
func (s *Store) fillClaim(d *webhook.Delivery, h *claim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.index.byNo[h.endpoint]
	if s.claims[d.ID] != *h || e == nil {
		return false
	}
	if h.fence <= d.Fence { // the clock was set back since
		s.fence = max(s.fence, d.Fence) + 1
		h.fence = s.fence
	}
	h.attempt = max(d.Attempt, h.attempt) + 1
	s.claims[d.ID], d.Attempt, d.Fence, d.Endpoint = *h, h.attempt, h.fence, *e.Endpoint
	return true
}

// undoClaim takes a claim back that no worker has got, unless another has followed it.
func (s *Store) undoClaim(id int64, h, was claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims[id] != h {
		return
	}
	if delete(s.claims, id); was != (claim{}) {
		s.claims[id] = was
	}
	if e := s.index.byNo[h.endpoint]; e != nil { // others may have seen the claim
		e.due, e.changes = 0, e.changes+1
	}
}

// beginFinish marks a claim as one whose result is being stored, so that the delivery is not
// claimed again however long that takes.
func (s *Store) beginFinish(d webhook.Delivery) (claim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.claims[d.ID]
	if !ok || h.fence != d.Fence || h.ending {
		return claim{}, staleClaim(d)
	}
	h.ending = true
	s.claims[d.ID] = h
	return h, nil
}

// endClaim ends a claim. With keep, because its result could not be stored, the claim stays until
// its lease ends.
func (s *Store) endClaim(d webhook.Delivery, keep bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.claims[d.ID]
	switch {
	case !ok || h.fence != d.Fence:
	case keep:
		h.ending = false
		s.claims[d.ID] = h
	default:
		delete(s.claims, d.ID)
	}
}

// dropClaim ends the claim of a delivery that is no longer pending, unless its result is being
// stored.
func (s *Store) dropClaim(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h, ok := s.claims[id]; ok && !h.ending {
		delete(s.claims, id)
	}
}

// claimedTests counts the claimed tests of an endpoint. They do not wait any more.
func (s *Store) claimedTests(endpointNo int64) (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.claims {
		if h.urgent && h.endpoint == endpointNo {
			n++
		}
	}
	return n
}

// addClaim adds the claim of a delivery to its record.
func (s *Store) addClaim(r *webhook.Record) {
	if r.State != webhook.Pending {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h, ok := s.claims[r.ID]; ok {
		r.Claimed, r.Attempt, r.DueMS = true, h.attempt, h.until
	}
}

// claimed returns the claims by delivery.
func (s *Store) claimed() map[int64]claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.claims)
}
