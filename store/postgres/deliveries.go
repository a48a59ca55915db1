package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/webhook"
)

// The numbers of delivery.state, which are those of webhook.StateNumber.
const (
	statePending = 0
	stateDead    = 2
)

func stateNumber(s webhook.DeliveryState) (int16, error) {
	n, err := webhook.StateNumber(s)
	return int16(n), err
}

func stateName(n int16) webhook.DeliveryState { return webhook.StateOf(int(n)) }

// Finish ends a claim with its result.
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
	detail, err := webhook.EncodeDetail(r.Try.Detail)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "the store failed")
	}
	disabled := false
	err = s.db.Transact(ctx, "finish delivery", func(ctx context.Context, tx pgx.Tx) error {
		var endpointNo, agentNo int64
		err := tx.QueryRow(ctx, `WITH f AS (UPDATE delivery SET state = $3, due_ms = $4, claimed = false, reason = $5, done_ms = $6,
					attempt = attempt - $16::boolean::int, retry = attempt > $16::boolean::int
				WHERE id = $1 AND fence = $2 AND claimed AND state = 0 RETURNING id, endpoint_no, event_no),
			a AS (INSERT INTO attempt (delivery_id, n, fence, started_ms, duration_ms, status, error_class, error, response, truncated, detail)
				SELECT id, $7, $2, $8, $9, $10, $11, $12, $13, $14, $15 FROM f WHERE NOT $16::boolean)
			SELECT f.endpoint_no, e.agent_no FROM f JOIN event e ON e.no = f.event_no`, d.ID, d.Fence, state, due, pg.Stored(r.Reason), done,
			r.Try.N, r.Try.StartedMS, r.Try.DurationMS, r.Try.Status, pg.Stored(r.Try.ErrorClass), pg.Stored(r.Try.Error), resp, truncated, detail, r.Untried).Scan(&endpointNo, &agentNo)
		if pg.NoRows(err) {
			return staleClaim(d)
		}
		if err != nil {
			return err
		}
		disabled, err = s.conclude(ctx, tx, endpointNo, agentNo, d, r)
		return err
	})
	if err == nil && disabled {
		_ = s.loadEndpoints(ctx, s.db.Pool) // the next transaction reloads them in any case
	}
	if err == nil && (state == stateDead || r.Untried) {
		s.wake() // the failure may have caused events, or the delivery is due again
	}
	return err
}

func staleClaim(d webhook.Delivery) error {
	return fault.New(fault.Conflict, "delivery %d was claimed again or closed since claim %d", d.ID, d.Fence)
}

// Backlog counts the pending and the dead deliveries. The indexes delivery_oldest and
// delivery_first find the oldest pending ones.
func (s *Store) Backlog(ctx context.Context) (b webhook.Backlog, err error) {
	err = s.db.Read(ctx, "count deliveries", func(ctx context.Context) error {
		return s.db.Pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM delivery WHERE state = 0), (SELECT count(*) FROM delivery WHERE state = 2),
			coalesce((SELECT min(due_ms) FROM delivery WHERE state = 0), 0), coalesce((SELECT min(first_ms) FROM delivery WHERE state = 0), 0)`).
			Scan(&b.Pending, &b.Dead, &b.OldestDue, &b.OldestPending)
	})
	return b, err
}

// Woken returns a channel that receives when this process commits deliveries. Deliveries that other
// replicas commit do not wake it.
func (s *Store) Woken() <-chan struct{} { return s.woken }
