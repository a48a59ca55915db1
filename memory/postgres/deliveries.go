package postgres

import (
	"context"
	"crypto/rand"
	"slices"
	"sort"
	"time"

	"github.com/jackc/pgx/v5"

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

func stateNumber(s webhook.DeliveryState) (int16, error) {
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

func stateName(n int16) webhook.DeliveryState {
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

func newKey() []byte {
	key := make([]byte, 32)
	rand.Read(key) // never fails
	return key
}

// due is a delivery that could be claimed.
type due struct {
	id, at        int64
	retry, urgent bool
	e             *webhook.Endpoint
}

// Claim takes due deliveries. Claims for one endpoint happen one after the other over all replicas, by its gate; a claim waits for all
// endpoints that something is due for, so that two replicas claim at once only where these have none in common.
func (s *Store) Claim(ctx context.Context, c webhook.Claim) (out []webhook.Delivery, err error) {
	if c.Limit <= 0 && c.Urgent <= 0 {
		return nil, nil
	}
	err = s.transact(ctx, "claim deliveries", func(ctx context.Context, tx pgx.Tx) error {
		out = nil
		nos, list, err := s.dueEndpoints(ctx, tx, c.NowMS)
		if err != nil || len(nos) == 0 {
			return err
		}
		urgent, err := s.urgentOf(ctx, tx, c, nos, list)
		if err != nil {
			return err
		}
		found, err := s.dueOf(ctx, tx, c, nos, list, urgent)
		if err != nil {
			return err
		}
		sort.SliceStable(found, func(i, j int) bool {
			a, b := found[i], found[j]
			if a.at != b.at {
				return a.at < b.at
			}
			return a.id < b.id
		})
		webhook.Fair(c, found, func(d due) (*webhook.Endpoint, bool) { return d.e, d.retry })
		if found = append(urgent, found[:min(len(found), c.Limit)]...); len(found) > 0 {
			if found, err = within(ctx, tx, c.Bytes, found); err == nil {
				out, err = s.claim(ctx, tx, c, found)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// dueEndpoints gives the enabled endpoints that something is due for, their gates locked.
func (s *Store) dueEndpoints(ctx context.Context, tx pgx.Tx, nowMS int64) ([]int64, []webhook.Endpoint, error) {
	rows, err := tx.Query(ctx, `SELECT g.endpoint_no FROM endpoint_gate g WHERE EXISTS (SELECT 1 FROM endpoint e WHERE e.no = g.endpoint_no AND e.id IS NOT NULL AND NOT e.disabled)
		AND (EXISTS (SELECT 1 FROM delivery d WHERE d.endpoint_no = g.endpoint_no AND d.state = 0 AND NOT d.retry AND d.due_ms <= $1)
		  OR EXISTS (SELECT 1 FROM delivery d WHERE d.endpoint_no = g.endpoint_no AND d.state = 0 AND d.retry AND d.due_ms <= $1))
		ORDER BY g.endpoint_no FOR UPDATE`, nowMS)
	if err != nil {
		return nil, nil, err
	}
	nos, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(nos) == 0 {
		return nil, nil, err
	}
	return s.someEndpoints(ctx, tx, "WHERE no = ANY($1) AND id IS NOT NULL AND NOT disabled", nos)
}

// urgentOf looks for tests that go before everything else.
func (s *Store) urgentOf(ctx context.Context, tx pgx.Tx, c webhook.Claim, nos []int64, list []webhook.Endpoint) (found []due, err error) {
	if c.Urgent <= 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, `SELECT id, endpoint_no FROM delivery WHERE state = 0 AND urgent AND due_ms <= $1 AND endpoint_no = ANY($2)
		ORDER BY due_ms, id LIMIT $3 FOR UPDATE SKIP LOCKED`, c.NowMS, nos, c.Urgent)
	if err != nil {
		return nil, err
	}
	var id, no int64
	_, err = pgx.ForEachRow(rows, []any{&id, &no}, func() error {
		found = append(found, due{id: id, urgent: true, e: &list[slices.Index(nos, no)]})
		return nil
	})
	return found, err
}

// dueOf looks for what else the endpoints may be sent now, in one round trip for all.
func (s *Store) dueOf(ctx context.Context, tx pgx.Tx, c webhook.Claim, nos []int64, list []webhook.Endpoint, but []due) (found []due, err error) {
	flying := map[int64]int{}
	rows, err := tx.Query(ctx, "SELECT endpoint_no, count(*) FROM delivery WHERE endpoint_no = ANY($1) AND state = 0 AND claimed AND due_ms > $2 GROUP BY endpoint_no", nos, c.NowMS)
	if err != nil {
		return nil, err
	}
	var no int64
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&no, &n}, func() error { flying[no] = n; return nil }); err != nil {
		return nil, err
	}
	taken := make([]int64, len(but))
	for i, d := range but {
		taken[i] = d.id
	}
	b := &pgx.Batch{}
	for i := range list {
		e := &list[i]
		limit := c.Limit
		if c.Room != nil {
			limit = min(limit, c.Room(e))
		}
		if most := e.InFlight(c.PerEndpoint); most > 0 {
			limit = min(limit, most-flying[nos[i]])
		}
		if limit <= 0 {
			continue
		}
		b.Queue(`SELECT id, due_ms, retry FROM delivery WHERE endpoint_no = $1 AND state = 0 AND due_ms <= $2 AND NOT (id = ANY($4)) ORDER BY retry, due_ms, id LIMIT $3
			FOR UPDATE SKIP LOCKED`, nos[i], c.NowMS, limit, taken).Query(func(rows pgx.Rows) error {
			d := due{e: e}
			_, err := pgx.ForEachRow(rows, []any{&d.id, &d.at, &d.retry}, func() error { found = append(found, d); return nil })
			return err
		})
	}
	if b.Len() == 0 {
		return nil, nil
	}
	err = tx.SendBatch(ctx, b).Close()
	return found, err
}

// within gives as many of what was found as the bodies of a claim may be long, and at least one.
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

// claim marks what was found and reads it.
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
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, err
	}
	// One whose event was erased while it was being made can never be sent, and is erased as well.
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

// Finish ends a claim with what came of it.
func (s *Store) Finish(ctx context.Context, d webhook.Delivery, r webhook.Result) error {
	state, err := stateNumber(r.State)
	if err != nil {
		return err
	}
	due, done := r.DueMS, int64(0)
	if state != statePending {
		due, done = 0, max(r.AtMS, 1)
	}
	resp, truncated := r.Try.Response, r.Try.Truncated
	if len(resp) > webhook.MaxResponse {
		resp, truncated = resp[:webhook.MaxResponse], true
	}
	detail, err := encodeDetail(r.Try.Detail)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "the store failed")
	}
	disabled := false
	err = s.transact(ctx, "finish delivery", func(ctx context.Context, tx pgx.Tx) error {
		var endpointNo, agentNo int64
		err := tx.QueryRow(ctx, `WITH f AS (UPDATE delivery SET state = $3, due_ms = $4, claimed = false, reason = $5, done_ms = $6,
					attempt = attempt - (CASE WHEN $16::boolean THEN 1 ELSE 0 END)
				WHERE id = $1 AND fence = $2 AND claimed AND state = 0 RETURNING id, endpoint_no, event_no),
			a AS (INSERT INTO attempt (delivery_id, n, fence, started_ms, duration_ms, status, error_class, error, response, truncated, detail)
				SELECT id, $7, $2, $8, $9, $10, $11, $12, $13, $14, $15 FROM f WHERE NOT $16::boolean)
			SELECT f.endpoint_no, e.agent_no FROM f JOIN event e ON e.no = f.event_no`, d.ID, d.Fence, state, due, stored(r.Reason), done,
			r.Try.N, r.Try.StartedMS, r.Try.DurationMS, r.Try.Status, stored(r.Try.ErrorClass), stored(r.Try.Error), resp, truncated, detail, r.Untried).Scan(&endpointNo, &agentNo)
		if noRows(err) {
			return staleClaim(d)
		}
		if err != nil {
			return err
		}
		disabled, err = s.conclude(ctx, tx, endpointNo, agentNo, d, r)
		return err
	})
	if err == nil && disabled {
		_ = s.loadEndpoints(ctx, s.pool) // the next transaction looks anyway
	}
	if err == nil && state == stateDead {
		s.wake() // others may be told
	}
	return err
}

func staleClaim(d webhook.Delivery) error {
	return fault.New(fault.Conflict, "delivery %d was claimed again or closed since claim %d", d.ID, d.Fence)
}

// Release gives a claim back unused. It is due at the event's own time: that is past, and so is "now" to every later claim.
func (s *Store) Release(ctx context.Context, d webhook.Delivery) error {
	err := s.transact(ctx, "release delivery", func(ctx context.Context, tx pgx.Tx) error {
		done, err := tx.Exec(ctx, `UPDATE delivery d SET due_ms = e.created_ms, attempt = d.attempt - 1, retry = d.attempt > 1, claimed = false
			FROM event e WHERE e.no = d.event_no AND d.id = $1 AND d.fence = $2 AND d.claimed AND d.state = 0`, d.ID, d.Fence)
		if err == nil && done.RowsAffected() != 1 {
			return staleClaim(d)
		}
		return err
	})
	if err == nil {
		s.wake()
	}
	return err
}

// Backlog counts what waits.
func (s *Store) Backlog(ctx context.Context) (b webhook.Backlog, err error) {
	err = s.read(ctx, "count deliveries", func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM delivery WHERE state = 0), (SELECT count(*) FROM delivery WHERE state = 2),
			coalesce((SELECT min(due_ms) FROM delivery WHERE state = 0), 0), coalesce((SELECT min(created_ms) FROM delivery WHERE state = 0), 0)`).
			Scan(&b.Pending, &b.Dead, &b.OldestDue, &b.OldestPending)
	})
	return b, err
}

// Woken receives when deliveries were committed by this process; others' are for their own workers, and for ours when they are due for long.
func (s *Store) Woken() <-chan struct{} { return s.woken }
