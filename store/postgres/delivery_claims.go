package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/store/statements"
	"github.com/heardlog/heardlog/webhook"
)

// claimAgain is the pause after which a claim that was left incomplete is retried.
const claimAgain = 5 * time.Millisecond

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

// candidates returns those of the sorted rows whose endpoints exist and can be read, and may be
// sent something. limits is how many due deliveries to read of each.
func (s *Store) candidates(due []int64, l webhook.Look) (nos []int64, limits []int32, list []webhook.Waiting) {
	p := s.published.Load()
	for i, no := range p.nos {
		if _, ok := slices.BinarySearch(due, no); !ok || p.unreadable[no] {
			continue
		}
		if n, any := l.Reads(&p.list[i]); any {
			nos, limits, list = append(nos, no), append(limits, int32(n)), append(list, webhook.Waiting{Endpoint: &p.list[i]})
		}
	}
	return nos, limits, list
}

// Waiting implements webhook.Queue.
func (s *Store) Waiting(ctx context.Context, l webhook.Look) (list []webhook.Waiting, err error) {
	err = s.db.Read(ctx, "look for due deliveries", func(ctx context.Context) error {
		due, endpoints, err := s.dueEndpoints(ctx, l.NowMS)
		if err == nil && len(due) > 0 {
			err = s.freshEndpoints(ctx, s.db.Pool, endpoints)
		}
		if err != nil || len(due) == 0 {
			list = nil
			return err
		}
		var nos []int64
		var limits []int32
		nos, limits, list = s.candidates(due, l)
		if len(nos) == 0 {
			return nil
		}
		at := make(map[int64]*webhook.Waiting, len(nos))
		for i, no := range nos {
			at[no] = &list[i]
		}
		b := &pgx.Batch{}
		if l.Limit > 0 {
			b.Queue(`SELECT u.no, d.id, d.due_ms, d.retry FROM unnest($1::bigint[], $2::int[]) u (no, n) CROSS JOIN LATERAL (
				SELECT id, due_ms, retry FROM delivery WHERE endpoint_no = u.no AND state = 0 AND due_ms <= $3 ORDER BY retry, due_ms, id LIMIT u.n) d`,
				nos, limits, l.NowMS).Query(func(rows pgx.Rows) error {
				return eachDue(rows, func(no int64, d webhook.Due) { at[no].Due = append(at[no].Due, d) })
			})
			b.Queue(claimsSQL, nos, l.NowMS).Query(func(rows pgx.Rows) error {
				return eachCount(rows, func(no int64, n int) { at[no].Claimed = n })
			})
		}
		if l.Tests {
			b.Queue("SELECT endpoint_no, id, due_ms, false FROM delivery WHERE state = 0 AND urgent AND due_ms <= $1 AND endpoint_no = ANY($2) ORDER BY due_ms, id LIMIT $3", l.NowMS, nos, sliceRows).Query(func(rows pgx.Rows) error {
				return eachDue(rows, func(no int64, d webhook.Due) { at[no].Tests = append(at[no].Tests, d) })
			})
		}
		return s.db.Pool.SendBatch(ctx, b).Close()
	})
	return list, err
}

// claimsSQL counts the claims of the endpoints $1 whose lease runs at the time $2.
const claimsSQL = "SELECT endpoint_no, count(*) FROM delivery WHERE endpoint_no = ANY($1) AND state = 0 AND claimed AND due_ms > $2 GROUP BY endpoint_no"

func eachDue(rows pgx.Rows, fn func(no int64, d webhook.Due)) error {
	var no int64
	var d webhook.Due
	_, err := pgx.ForEachRow(rows, []any{&no, &d.ID, &d.DueMS, &d.Retry}, func() error { fn(no, d); return nil })
	return err
}

func eachCount(rows pgx.Rows, fn func(no int64, n int)) error {
	var no int64
	var n int
	_, err := pgx.ForEachRow(rows, []any{&no, &n}, func() error { fn(no, n); return nil })
	return err
}

// Claim implements webhook.Queue. It locks the gate of each endpoint, so that the endpoint's limit
// on concurrent attempts holds across all replicas. It does not wait for a gate: it leaves out an
// endpoint whose gate another replica holds, and wakes the workers to retry after claimAgain.
func (s *Store) Claim(ctx context.Context, t webhook.Taking) (out []webhook.Delivery, err error) {
	incomplete := false
	err = s.db.Transact(ctx, "claim deliveries", func(ctx context.Context, tx pgx.Tx) error {
		found, skipped, err := s.lockDue(ctx, tx, t)
		if out, incomplete = nil, skipped; err != nil || len(found) == 0 {
			return err
		}
		out, err = s.claim(ctx, tx, t, found)
		return err
	})
	if err != nil {
		return nil, err
	}
	if incomplete {
		time.AfterFunc(claimAgain, s.wake)
	}
	return out, nil
}

// lockDue locks and returns those of the deliveries that can be claimed. skipped reports whether
// another replica was quicker to claim or to lock some of the others.
func (s *Store) lockDue(ctx context.Context, tx pgx.Tx, t webhook.Taking) (found []webhook.Take, skipped bool, err error) {
	type locked struct {
		no    int64
		bytes *int64 // nil if the event was erased
	}
	rows, ours, claims := map[int64]locked{}, map[int64]bool{}, map[int64]int{}
	ids := pg.Column(t.List, func(d *webhook.Take) int64 { return d.ID })
	b := &pgx.Batch{}
	b.Queue(`SELECT d.id, d.endpoint_no, coalesce(e.size, octet_length(e.body)) FROM delivery d LEFT JOIN event e ON e.no = d.event_no
		WHERE d.id = ANY($1) AND d.state = 0 AND d.due_ms <= $2 ORDER BY d.id FOR UPDATE OF d SKIP LOCKED`, ids, t.NowMS).Query(func(r pgx.Rows) error {
		var id int64
		var l locked
		_, err := pgx.ForEachRow(r, []any{&id, &l.no, &l.bytes}, func() error { rows[id] = l; return nil })
		return err
	})
	b.Queue(`SELECT endpoint_no, 0 FROM endpoint_gate g WHERE endpoint_no IN (SELECT endpoint_no FROM delivery WHERE id = ANY($1))
		AND EXISTS (SELECT 1 FROM endpoint e WHERE e.no = g.endpoint_no AND e.id IS NOT NULL AND NOT e.disabled) ORDER BY endpoint_no FOR UPDATE SKIP LOCKED`, ids).Query(func(r pgx.Rows) error {
		return eachCount(r, func(no int64, _ int) { ours[no] = true })
	})
	b.Queue("SELECT endpoint_no, count(*) FROM delivery WHERE endpoint_no IN (SELECT endpoint_no FROM delivery WHERE id = ANY($1)) AND state = 0 AND claimed AND due_ms > $2 GROUP BY endpoint_no", ids, t.NowMS).Query(func(r pgx.Rows) error {
		return eachCount(r, func(no int64, n int) { claims[no] = n })
	})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, false, err
	}
	var lost []int64 // whose events were erased while they were being created: they can never be sent
	bytes := int64(0)
	for _, d := range t.List {
		l, ok := rows[d.ID]
		switch {
		case !ok || !d.Urgent && !ours[l.no]:
			skipped = true
			continue
		case l.bytes == nil:
			lost = append(lost, d.ID)
			continue
		case d.Most > 0 && claims[l.no] >= d.Most:
			continue
		}
		if bytes += *l.bytes; t.Bytes > 0 && bytes > t.Bytes && len(found) > 0 {
			break
		}
		claims[l.no]++
		found = append(found, d)
	}
	if len(lost) > 0 {
		_, err = tx.Exec(ctx, "DELETE FROM delivery WHERE id = ANY($1)", lost)
	}
	return found, skipped, err
}

// claim marks deliveries as claimed and reads them.
func (s *Store) claim(ctx context.Context, tx pgx.Tx, t webhook.Taking, found []webhook.Take) ([]webhook.Delivery, error) {
	ids := pg.Column(found, func(d *webhook.Take) int64 { return d.ID })
	out := make([]webhook.Delivery, len(found))
	at := make(map[int64]int, len(found))
	for i, id := range ids {
		at[id] = i
	}
	until := t.NowMS + max(int64(t.Lease/time.Millisecond), 1)
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
			var err error
			if d.Body, err = statements.OpenEvent(s.sealer, d.EventID, d.Body); err != nil {
				return err
			}
			i := at[d.ID]
			d.Endpoint, d.Urgent = found[i].Endpoint.Clone(), found[i].Urgent
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
	return out, tx.SendBatch(ctx, b).Close()
}
