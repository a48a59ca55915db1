package postgres

import (
	"context"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/webhook"
)

// due is a delivery that could be claimed.
type due struct {
	id, no, at    int64 // no is the row of the endpoint
	retry, urgent bool
	e             *webhook.Endpoint
}

// claiming is a claim under way. endpoints holds those that have due deliveries and may receive
// them, by row.
type claiming struct {
	tx        pgx.Tx
	c         webhook.Claim
	endpoints map[int64]*webhook.Endpoint
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
	err = s.db.Read(ctx, "look for due deliveries", func(ctx context.Context) (err error) {
		if nos, endpoints, err = s.dueEndpoints(ctx, c.NowMS); err == nil && len(nos) > 0 {
			err = s.freshEndpoints(ctx, s.db.Pool, endpoints)
		}
		return err
	})
	by := s.enabled(nos)
	if err != nil || len(by) == 0 {
		return nil, err
	}
	busy := false // whether another replica holds the gate of an endpoint with due deliveries
	err = s.db.Transact(ctx, "claim deliveries", func(ctx context.Context, tx pgx.Tx) error {
		out, busy = nil, false
		cl := claiming{tx, c, by}
		left := slices.Sorted(maps.Keys(by))
		urgent, err := cl.urgent(ctx, left)
		if err != nil {
			return err
		}
		var found []due
		for len(left) > 0 && len(found) < c.Limit {
			chosen, rest, err := cl.choose(ctx, left)
			if err != nil {
				return err
			}
			ours, err := cl.gates(ctx, chosen)
			if err != nil {
				return err
			}
			more, err := cl.due(ctx, ours, urgent)
			if err != nil {
				return err
			}
			found, left, busy = append(found, more...), rest, busy || len(ours) < len(chosen)
			if len(ours) == len(chosen) {
				break
			}
		}
		found = fair(c, found)
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

// fair returns the deliveries that may be sent, in the order in which they are to be sent.
func fair(c webhook.Claim, found []due) []due {
	sort.SliceStable(found, func(i, j int) bool {
		a, b := found[i], found[j]
		if a.at != b.at {
			return a.at < b.at
		}
		return a.id < b.id
	})
	webhook.Fair(c, found, func(d due) (*webhook.Endpoint, bool) { return d.e, d.retry })
	shares := c.Shares()
	return slices.DeleteFunc(found, func(d due) bool { return !shares(d.e) })
}

// pendingEndpoints is the start of a query that reads the endpoints with pending deliveries from
// waits, where one row is null. It steps through the index from one endpoint to the next, so that
// its cost does not grow with the number of deliveries.
const pendingEndpoints = `WITH RECURSIVE waits AS (
	(SELECT endpoint_no FROM delivery WHERE state = 0 ORDER BY endpoint_no LIMIT 1)
	UNION ALL SELECT (SELECT d.endpoint_no FROM delivery d WHERE d.state = 0 AND d.endpoint_no > w.endpoint_no ORDER BY d.endpoint_no LIMIT 1)
	FROM waits w WHERE w.endpoint_no IS NOT NULL)`

// dueEndpoints returns the rows of endpoints that have due deliveries, and the number of changes of
// endpoints.
func (s *Store) dueEndpoints(ctx context.Context, nowMS int64) (nos []int64, endpoints int64, err error) {
	var no int64
	err = pg.Each(ctx, s.db.Pool, []any{&no, &endpoints}, func() error { nos = append(nos, no); return nil }, pendingEndpoints+`
		SELECT w.endpoint_no, (SELECT n FROM counter WHERE key = 'endpoints') FROM waits w WHERE w.endpoint_no IS NOT NULL
			AND (EXISTS (SELECT 1 FROM delivery d WHERE d.endpoint_no = w.endpoint_no AND d.state = 0 AND NOT d.retry AND d.due_ms <= $1)
				OR EXISTS (SELECT 1 FROM delivery d WHERE d.endpoint_no = w.endpoint_no AND d.state = 0 AND d.retry AND d.due_ms <= $1))`, nowMS)
	slices.Sort(nos)
	return nos, endpoints, err
}

// enabled returns those of the sorted rows whose endpoints exist, are enabled and can be read.
func (s *Store) enabled(nos []int64) map[int64]*webhook.Endpoint {
	by := map[int64]*webhook.Endpoint{}
	p := s.published.Load()
	for i, no := range p.nos {
		if _, ok := slices.BinarySearch(nos, no); ok && !p.list[i].Disabled && !p.unreadable[no] {
			by[no] = &p.list[i]
		}
	}
	return by
}

func idsOf(list []due) []int64 { return pg.Column(list, func(d *due) int64 { return d.id }) }

// rooms returns how many deliveries may be claimed for each endpoint.
func (cl *claiming) rooms(nos []int64) []int32 {
	return pg.Column(nos, func(no *int64) int32 {
		if cl.c.Room == nil {
			return int32(cl.c.Limit)
		}
		return int32(min(cl.c.Limit, max(cl.c.Room(cl.endpoints[*no]), 0)))
	})
}

// urgent locks and returns due test deliveries. They go before all other deliveries and do not
// count toward an endpoint's limit, so they need no gate.
func (cl *claiming) urgent(ctx context.Context, nos []int64) (found []due, err error) {
	if cl.c.Urgent <= 0 {
		return nil, nil
	}
	d := due{urgent: true}
	err = pg.Each(ctx, cl.tx, []any{&d.id, &d.no}, func() error {
		d.e = cl.endpoints[d.no]
		found = append(found, d)
		return nil
	}, `SELECT id, endpoint_no FROM delivery WHERE state = 0 AND urgent AND due_ms <= $1 AND endpoint_no = ANY($2)
		ORDER BY due_ms, id LIMIT $3 FOR UPDATE SKIP LOCKED`, cl.c.NowMS, nos, cl.c.Urgent)
	return found, err
}

// choose splits the endpoints into those whose deliveries go first, at most as many as the claim
// may take, and the rest. If there are no more than that, it chooses all without a query.
func (cl *claiming) choose(ctx context.Context, nos []int64) (chosen, rest []int64, err error) {
	if cl.c.Limit <= 0 || len(nos) <= cl.c.Limit {
		return nos, nil, nil
	}
	rows, err := cl.tx.Query(ctx, dueSQL(""), nos, cl.rooms(nos), cl.c.NowMS, []int64{})
	if err != nil {
		return nil, nil, err
	}
	found, err := cl.scan(rows)
	if err != nil {
		return nil, nil, err
	}
	found = fair(cl.c, found)
	first := map[int64]bool{}
	for _, d := range found[:min(len(found), cl.c.Limit)] {
		first[d.no] = true
	}
	for _, no := range nos {
		if first[no] {
			chosen = append(chosen, no)
		} else if len(first) > 0 {
			rest = append(rest, no)
		}
	}
	return chosen, rest, nil
}

// gates locks the gates of the endpoints, and returns the endpoints whose gates no other
// transaction holds.
func (cl *claiming) gates(ctx context.Context, nos []int64) (ours []int64, err error) {
	return pg.Collect(ctx, cl.tx, pgx.RowTo[int64], `SELECT endpoint_no FROM endpoint_gate g WHERE endpoint_no = ANY($1)
		AND EXISTS (SELECT 1 FROM endpoint e WHERE e.no = g.endpoint_no AND e.id IS NOT NULL AND NOT e.disabled) ORDER BY endpoint_no FOR UPDATE SKIP LOCKED`, nos)
}

// dueSQL returns a query for the deliveries of the endpoints $1 that are due at the time $3. It
// selects at most $2 deliveries for each endpoint and skips those in $4.
func dueSQL(locks string) string {
	return `SELECT u.no, d.id, d.due_ms, d.retry FROM unnest($1::bigint[], $2::int[]) u (no, n) CROSS JOIN LATERAL (
		SELECT id, due_ms, retry FROM delivery WHERE endpoint_no = u.no AND state = 0 AND due_ms <= $3 AND NOT (id = ANY($4)) ORDER BY retry, due_ms, id LIMIT u.n` + locks + `) d`
}

func (cl *claiming) scan(rows pgx.Rows) (found []due, err error) {
	var d due
	_, err = pgx.ForEachRow(rows, []any{&d.no, &d.id, &d.at, &d.retry}, func() error {
		d.e = cl.endpoints[d.no]
		found = append(found, d)
		return nil
	})
	return found, err
}

// due locks and returns the deliveries that the endpoints may receive now, in one round trip. It
// skips those in but.
func (cl *claiming) due(ctx context.Context, nos []int64, but []due) (found []due, err error) {
	c := cl.c
	if len(nos) == 0 || c.Limit <= 0 {
		return nil, nil
	}
	flying, ended := map[int64]int{}, map[int64]int{}
	b := &pgx.Batch{}
	b.Queue("SELECT endpoint_no, count(*) FROM delivery WHERE endpoint_no = ANY($1) AND state = 0 AND claimed AND due_ms > $2 GROUP BY endpoint_no", nos, c.NowMS).Query(func(rows pgx.Rows) error {
		var no int64
		var n int
		_, err := pgx.ForEachRow(rows, []any{&no, &n}, func() error { flying[no] = n; return nil })
		return err
	})
	b.Queue(dueSQL(" FOR UPDATE SKIP LOCKED"), nos, cl.rooms(nos), c.NowMS, idsOf(but)).Query(func(rows pgx.Rows) (err error) {
		found, err = cl.scan(rows)
		return err
	})
	if err := cl.tx.SendBatch(ctx, b).Close(); err != nil {
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
	size := map[int64]int64{}
	var id, n int64
	if err := pg.Each(ctx, tx, []any{&id, &n}, func() error { size[id] = n; return nil }, "SELECT d.id, octet_length(e.body) FROM delivery d JOIN event e ON e.no = d.event_no WHERE d.id = ANY($1)", idsOf(found)); err != nil {
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
	ids := idsOf(found)
	out := make([]webhook.Delivery, len(found))
	at := make(map[int64]int, len(found))
	for i, id := range ids {
		at[id] = i
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
			d.EventID, d.Project, d.AgentID = pg.Shown(d.EventID), pg.Shown(d.Project), pg.Shown(d.AgentID)
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
