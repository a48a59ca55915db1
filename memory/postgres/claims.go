package postgres

import (
	"context"
	"slices"
	"sort"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/webhook"
)

// due is a delivery that could be claimed.
type due struct {
	id, no, at    int64 // no is the row of the endpoint
	retry, urgent bool
	e             *webhook.Endpoint
}

// waiting is an endpoint with due deliveries.
type waiting struct {
	no int64
	e  *webhook.Endpoint
}

// claimAgain is the pause after which a claim that skipped an endpoint is retried.
const claimAgain = 5 * time.Millisecond

// Claim takes due deliveries. A claim locks the gate of each endpoint, so that the endpoint's limit
// on concurrent attempts holds across all replicas. A claim does not wait for a gate. It skips an
// endpoint whose gate another replica holds, and wakes the workers to retry it after claimAgain.
func (s *Store) Claim(ctx context.Context, c webhook.Claim) (out []webhook.Delivery, err error) {
	if c.Limit <= 0 && c.Urgent <= 0 {
		return nil, nil
	}
	var nos []int64
	var endpoints int64
	err = s.read(ctx, "look for due deliveries", func(ctx context.Context) (err error) {
		if nos, endpoints, err = s.dueEndpoints(ctx, c.NowMS); err == nil && len(nos) > 0 {
			err = s.freshEndpoints(ctx, s.pool, endpoints)
		}
		return err
	})
	list := s.enabled(nos)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	busy := false // whether another replica holds the gate of an endpoint with due deliveries
	err = s.transact(ctx, "claim deliveries", func(ctx context.Context, tx pgx.Tx) error {
		out, busy = nil, false
		urgent, err := s.urgentOf(ctx, tx, c, list)
		if err != nil {
			return err
		}
		var found []due
		for left := list; len(left) > 0 && len(found) < c.Limit; {
			chosen, rest, err := s.choose(ctx, tx, c, left)
			if err != nil {
				return err
			}
			ours, err := gates(ctx, tx, chosen)
			if err != nil {
				return err
			}
			more, err := s.dueOf(ctx, tx, c, ours, urgent)
			if err != nil {
				return err
			}
			found, left, busy = append(found, more...), rest, busy || len(ours) < len(chosen)
			if len(ours) == len(chosen) {
				break
			}
		}
		fair(c, found)
		if found = append(urgent, found[:min(len(found), max(c.Limit, 0))]...); len(found) > 0 {
			if found, err = within(ctx, tx, c.Bytes, found); err == nil {
				out, err = s.claim(ctx, tx, c, found)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if busy && len(out) < c.Limit {
		time.AfterFunc(claimAgain, s.wake)
	}
	return out, nil
}

// fair sorts deliveries into the order in which they are to be sent.
func fair(c webhook.Claim, found []due) {
	sort.SliceStable(found, func(i, j int) bool {
		a, b := found[i], found[j]
		if a.at != b.at {
			return a.at < b.at
		}
		return a.id < b.id
	})
	webhook.Fair(c, found, func(d due) (*webhook.Endpoint, bool) { return d.e, d.retry })
}

// dueEndpoints returns the rows of endpoints that have due deliveries, in order, and the number of
// changes of endpoints. It steps through the index from one endpoint to the next, so that its cost
// does not grow with the number of deliveries.
func (s *Store) dueEndpoints(ctx context.Context, nowMS int64) (nos []int64, endpoints int64, err error) {
	rows, err := s.pool.Query(ctx, `WITH RECURSIVE waits AS (
			(SELECT endpoint_no FROM delivery WHERE state = 0 ORDER BY endpoint_no LIMIT 1)
			UNION ALL SELECT (SELECT d.endpoint_no FROM delivery d WHERE d.state = 0 AND d.endpoint_no > w.endpoint_no ORDER BY d.endpoint_no LIMIT 1)
			FROM waits w WHERE w.endpoint_no IS NOT NULL)
		SELECT w.endpoint_no, (SELECT n FROM counter WHERE key = 'endpoints') FROM waits w WHERE w.endpoint_no IS NOT NULL
			AND (EXISTS (SELECT 1 FROM delivery d WHERE d.endpoint_no = w.endpoint_no AND d.state = 0 AND NOT d.retry AND d.due_ms <= $1)
				OR EXISTS (SELECT 1 FROM delivery d WHERE d.endpoint_no = w.endpoint_no AND d.state = 0 AND d.retry AND d.due_ms <= $1))`, nowMS)
	if err != nil {
		return nil, 0, err
	}
	var no int64
	_, err = pgx.ForEachRow(rows, []any{&no, &endpoints}, func() error { nos = append(nos, no); return nil })
	slices.Sort(nos)
	return nos, endpoints, err
}

// enabled returns those of the rows whose endpoints exist, are enabled and can be read.
func (s *Store) enabled(nos []int64) (list []waiting) {
	p := s.published.Load()
	for i := range p.list {
		if _, ok := slices.BinarySearch(nos, p.nos[i]); ok && !p.list[i].Disabled && !p.unreadable[p.nos[i]] {
			list = append(list, waiting{p.nos[i], &p.list[i]})
		}
	}
	return list
}

// endpointOf returns the endpoint with the row number no. The list is sorted and must contain it.
func endpointOf(list []waiting, no int64) *webhook.Endpoint {
	i, _ := slices.BinarySearchFunc(list, no, func(w waiting, no int64) int { return int(min(max(w.no-no, -1), 1)) })
	return list[i].e
}

func rowsOf(list []waiting) []int64 {
	nos := make([]int64, len(list))
	for i, w := range list {
		nos[i] = w.no
	}
	return nos
}

// urgentOf locks and returns due test deliveries. They go before all other deliveries and do not
// count toward an endpoint's limit, so they need no gate.
func (s *Store) urgentOf(ctx context.Context, tx pgx.Tx, c webhook.Claim, list []waiting) (found []due, err error) {
	if c.Urgent <= 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, `SELECT id, endpoint_no FROM delivery WHERE state = 0 AND urgent AND due_ms <= $1 AND endpoint_no = ANY($2)
		ORDER BY due_ms, id LIMIT $3 FOR UPDATE SKIP LOCKED`, c.NowMS, rowsOf(list), c.Urgent)
	if err != nil {
		return nil, err
	}
	d := due{urgent: true}
	_, err = pgx.ForEachRow(rows, []any{&d.id, &d.no}, func() error {
		d.e = endpointOf(list, d.no)
		found = append(found, d)
		return nil
	})
	return found, err
}

// choose splits the endpoints into those whose deliveries go first, at most c.Limit of them, and
// the rest. If the list is no longer than that, it chooses all of them without a query.
func (s *Store) choose(ctx context.Context, tx pgx.Tx, c webhook.Claim, list []waiting) (chosen, rest []waiting, err error) {
	if c.Limit <= 0 || len(list) <= c.Limit {
		return list, nil, nil
	}
	limits := make([]int32, len(list))
	for i := range limits {
		limits[i] = int32(c.Limit)
		if c.Room != nil {
			limits[i] = int32(min(c.Limit, max(c.Room(list[i].e), 0)))
		}
	}
	rows, err := tx.Query(ctx, dueSQL(""), rowsOf(list), limits, c.NowMS, []int64{})
	if err != nil {
		return nil, nil, err
	}
	found, err := scanDue(rows, list)
	if err != nil {
		return nil, nil, err
	}
	fair(c, found)
	first := map[int64]bool{}
	for _, d := range found[:min(len(found), c.Limit)] {
		first[d.no] = true
	}
	for _, w := range list {
		if first[w.no] {
			chosen = append(chosen, w)
		} else if len(first) > 0 {
			rest = append(rest, w)
		}
	}
	return chosen, rest, nil
}

// gates locks the gates of the endpoints, and returns the endpoints whose gates no other
// transaction holds.
func gates(ctx context.Context, tx pgx.Tx, list []waiting) (ours []waiting, err error) {
	rows, err := tx.Query(ctx, `SELECT endpoint_no FROM endpoint_gate g WHERE endpoint_no = ANY($1)
		AND EXISTS (SELECT 1 FROM endpoint e WHERE e.no = g.endpoint_no AND e.id IS NOT NULL AND NOT e.disabled) ORDER BY endpoint_no FOR UPDATE SKIP LOCKED`, rowsOf(list))
	if err != nil {
		return nil, err
	}
	nos, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	return slices.DeleteFunc(slices.Clone(list), func(w waiting) bool { _, ok := slices.BinarySearch(nos, w.no); return !ok }), err
}

// dueSQL returns a query for the deliveries of the endpoints $1 that are due at the time $3. It
// selects at most $2 deliveries for each endpoint and skips those in $4.
func dueSQL(locks string) string {
	return `SELECT u.no, d.id, d.due_ms, d.retry FROM unnest($1::bigint[], $2::int[]) u (no, n) CROSS JOIN LATERAL (
		SELECT id, due_ms, retry FROM delivery WHERE endpoint_no = u.no AND state = 0 AND due_ms <= $3 AND NOT (id = ANY($4)) ORDER BY retry, due_ms, id LIMIT u.n` + locks + `) d`
}

func scanDue(rows pgx.Rows, list []waiting) (found []due, err error) {
	var d due
	_, err = pgx.ForEachRow(rows, []any{&d.no, &d.id, &d.at, &d.retry}, func() error {
		d.e = endpointOf(list, d.no)
		found = append(found, d)
		return nil
	})
	return found, err
}

// dueOf locks and returns the deliveries that the endpoints may receive now, in one round trip. It
// skips those in but.
func (s *Store) dueOf(ctx context.Context, tx pgx.Tx, c webhook.Claim, list []waiting, but []due) (found []due, err error) {
	if len(list) == 0 || c.Limit <= 0 {
		return nil, nil
	}
	limits := make([]int32, len(list))
	for i, w := range list {
		limits[i] = int32(c.Limit)
		if c.Room != nil {
			limits[i] = int32(min(c.Limit, max(c.Room(w.e), 0)))
		}
	}
	taken := make([]int64, len(but))
	for i, d := range but {
		taken[i] = d.id
	}
	flying, ended := map[int64]int{}, map[int64]int{}
	b := &pgx.Batch{}
	b.Queue("SELECT endpoint_no, count(*) FROM delivery WHERE endpoint_no = ANY($1) AND state = 0 AND claimed AND due_ms > $2 GROUP BY endpoint_no", rowsOf(list), c.NowMS).Query(func(rows pgx.Rows) error {
		var no int64
		var n int
		_, err := pgx.ForEachRow(rows, []any{&no, &n}, func() error { flying[no] = n; return nil })
		return err
	})
	b.Queue(dueSQL(" FOR UPDATE SKIP LOCKED"), rowsOf(list), limits, c.NowMS, taken).Query(func(rows pgx.Rows) (err error) {
		found, err = scanDue(rows, list)
		return err
	})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, err
	}
	// The deliveries of an endpoint are in order. Those beyond its limit are left out.
	return slices.DeleteFunc(found, func(d due) bool {
		most := d.e.InFlight(c.PerEndpoint)
		if n, known := ended[d.no]; most > 0 && c.Ended != nil {
			if !known {
				n = min(c.Ended(d.e), flying[d.no])
				ended[d.no] = n
			}
			most += n
		}
		flying[d.no]++
		return most > 0 && flying[d.no] > most
	}), nil
}

// within returns the longest prefix of found whose event bodies have at most most bytes together.
// It returns at least one delivery.
func within(ctx context.Context, tx pgx.Tx, most int64, found []due) ([]due, error) {
	if most <= 0 || len(found) < 2 {
		return found, nil
	}
	ids := make([]int64, len(found))
	for i, d := range found {
		ids[i] = d.id
	}
	rows, err := tx.Query(ctx, "SELECT d.id, octet_length(e.body) FROM delivery d JOIN event e ON e.no = d.event_no WHERE d.id = ANY($1)", ids)
	if err != nil {
		return nil, err
	}
	size := map[int64]int64{}
	var id, n int64
	if _, err := pgx.ForEachRow(rows, []any{&id, &n}, func() error { size[id] = n; return nil }); err != nil {
		return nil, err
	}
	for i, d := range found {
		if most -= size[d.id]; most < 0 {
			return found[:max(i, 1)], nil
		}
	}
	return found, nil
}

// claim marks deliveries as claimed and reads them.
func (s *Store) claim(ctx context.Context, tx pgx.Tx, c webhook.Claim, found []due) ([]webhook.Delivery, error) {
	ids := make([]int64, len(found))
	out := make([]webhook.Delivery, len(found))
	at := make(map[int64]int, len(found))
	for i, d := range found {
		ids[i], at[d.id] = d.id, i
	}
	until := c.NowMS + max(int64(c.Lease/time.Millisecond), 1)
	b := &pgx.Batch{}
	b.Queue("UPDATE delivery SET due_ms = $2, attempt = attempt + 1, retry = true, urgent = false, fence = fence + 1, claimed = true WHERE id = ANY($1)", ids, until)
	b.Queue(`SELECT d.id, d.attempt, d.fence, e.id, e.type, e.project, e.agent_id, e.body, e.created_ms, d.first_ms
		FROM delivery d JOIN event e ON e.no = d.event_no WHERE d.id = ANY($1)`, ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var d webhook.Delivery
			if err := rows.Scan(&d.ID, &d.Attempt, &d.Fence, &d.EventID, &d.Type, &d.Project, &d.AgentID, &d.Body, &d.CreatedMS, &d.FirstDueMS); err != nil {
				return err
			}
			d.EventID, d.Project, d.AgentID = shown(d.EventID), shown(d.Project), shown(d.AgentID)
			i := at[d.ID]
			d.Endpoint, d.Urgent = found[i].e.Clone(), found[i].urgent
			out[i] = d
		}
		return rows.Err()
	})
	// The endpoints come from memory. Only the times of their health, which change with deliveries,
	// are read from the database.
	b.Queue("SELECT d.id, p.last_success_ms, p.first_failure_ms, p.last_failure_ms FROM delivery d JOIN endpoint p ON p.no = d.endpoint_no WHERE d.id = ANY($1)", ids).Query(func(rows pgx.Rows) error {
		var id, success, first, last int64
		_, err := pgx.ForEachRow(rows, []any{&id, &success, &first, &last}, func() error {
			e := &out[at[id]].Endpoint
			e.LastSuccessMS, e.FirstFailureMS, e.LastFailureMS = success, first, last
			return nil
		})
		return err
	})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, err
	}
	// A delivery whose event was erased while it was being created can never be sent, so it is
	// deleted.
	var lost []int64
	for i, d := range out {
		if d.ID == 0 {
			lost = append(lost, found[i].id)
		}
	}
	if len(lost) == 0 {
		return out, nil
	}
	_, err := tx.Exec(ctx, "DELETE FROM delivery WHERE id = ANY($1)", lost)
	return slices.DeleteFunc(out, func(d webhook.Delivery) bool { return d.ID == 0 }), err
}
