package postgres

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/store/statements"
	"github.com/heardlog/heardlog/webhook"
)

// Events implements webhook.Log.
func (s *Store) Events(ctx context.Context, q webhook.EventQuery) (page webhook.EventPage, err error) {
	err = s.db.Read(ctx, "list events", func(ctx context.Context) (err error) {
		page, err = statements.Events(pg.NewStatements(ctx, s.db.Pool), q)
		return err
	})
	return page, err
}

// Event implements webhook.Log.
func (s *Store) Event(ctx context.Context, project, id string) (m webhook.Event, err error) {
	err = s.db.Read(ctx, "read event", func(ctx context.Context) (err error) {
		m, err = statements.Event(pg.NewStatements(ctx, s.db.Pool), s.sealer, project, id)
		return err
	})
	return m, err
}

// AgentEvents implements webhook.Log.
func (s *Store) AgentEvents(ctx context.Context, project, agentID string, each func(webhook.Event) error) error {
	return s.db.Read(ctx, "read an agent's events", func(ctx context.Context) error {
		return statements.AgentEvents(pg.NewStatements(ctx, s.db.Pool), s.sealer, project, agentID, each)
	})
}

// recordSQL reads deliveries as records, with the rows that they refer to.
const recordSQL = `SELECT d.id, e.id, e.type, e.project, e.agent_id, coalesce(p.id, p.gone_id, ''), d.state, d.claimed, d.attempt, e.created_ms, d.created_ms, d.due_ms,
	d.done_ms, d.reason, d.replay_of, coalesce(e.size, length(e.body)), d.endpoint_no, p.id IS NOT NULL FROM delivery d JOIN event e ON e.no = d.event_no LEFT JOIN endpoint p ON p.no = d.endpoint_no `

// deliveryRow is a record with its endpoint's row, and whether that is not deleted.
type deliveryRow struct {
	webhook.Record
	endpoint int64
	live     bool
}

func (r deliveryRow) place() webhook.Cursor { return webhook.Cursor{MS: r.CreatedMS, ID: r.ID} }

func scanRecord(row pgx.CollectableRow) (r deliveryRow, err error) {
	var state int16
	err = row.Scan(&r.ID, &r.EventID, &r.Type, &r.Project, &r.AgentID, &r.EndpointID, &state, &r.Claimed, &r.Attempt, &r.EventMS, &r.CreatedMS, &r.DueMS, &r.DoneMS,
		&r.Reason, &r.ReplayOf, &r.Size, &r.endpoint, &r.live)
	pg.Show(&r.EventID, &r.Project, &r.AgentID, &r.EndpointID, &r.Reason)
	if r.State = stateName(state); r.State != webhook.Pending {
		r.DueMS = 0
	}
	return r, err
}

// records reads deliveries; sql is what follows recordSQL.
func records(ctx context.Context, q pg.Querier, rest string, args ...any) ([]deliveryRow, error) {
	return pg.Collect(ctx, q, scanRecord, recordSQL+rest, args...)
}

// newest reads the newest deliveries that a filter selects, at most limit of those before a place
// and with IDs up to upto. Each state, and each row of an endpoint, is read by its own range of an
// index: a filter that leaves most of them out does not pass over the others.
func newest(ctx context.Context, q pg.Querier, f webhook.DeliveryQuery, at webhook.Cursor, upto int64, limit int) ([]deliveryRow, error) {
	states, err := statesOf(f)
	if err != nil {
		return nil, err
	}
	if any, err := anyEvents(ctx, q, f); err != nil || !any {
		return nil, err
	}
	from, to := statements.Span(f.FromMS, f.ToMS, at)
	args := []any{pg.Stored(f.Project), from, to, states, at.MS, at.ID, upto}
	ranges, order := "unnest($4::smallint[]) s (state)", "d.created_ms DESC, d.id DESC"
	conds := []string{"d.project = $1", "d.created_ms >= $2", "d.created_ms < $3", "d.state = s.state", "(d.created_ms, d.id) < ($5, $6)", "d.id <= $7"}
	arg := func(v any) string {
		args = append(args, v)
		return "$" + strconv.Itoa(len(args))
	}
	if f.Endpoint != "" {
		id := arg(pg.Stored(f.Endpoint))
		ranges += ", (SELECT no FROM endpoint WHERE id = " + id + " OR gone_id = " + id + ") p"
		conds = append(conds, "d.endpoint_no = p.no")
	}
	if f.EventID != "" {
		conds = append(conds, "e.id = "+arg(pg.Stored(f.EventID)))
	}
	if f.AgentID != "" {
		id := arg(pg.Stored(f.AgentID))
		conds = append(conds, "e.agent_id = "+id, "e.agent_no = ANY(ARRAY(SELECT no FROM agent WHERE project = $1 AND id = "+id+"))")
	}
	if len(f.Types) > 0 {
		conds = append(conds, "e.type = ANY("+arg(typesOf(f))+"::int[])")
	}
	if f.EventID != "" || f.AgentID != "" {
		// Else the planner may walk the ranges in this order, hoping to meet the event soon.
		order = "d.created_ms + 0 DESC, d.id DESC"
	}
	return records(ctx, q, fmt.Sprintf(`WHERE d.id = ANY(ARRAY(SELECT n.id FROM %s, LATERAL (
			SELECT d.id, d.created_ms FROM delivery d JOIN event e ON e.no = d.event_no WHERE %s ORDER BY %s LIMIT %d
		) n ORDER BY n.created_ms DESC, n.id DESC LIMIT %d)) ORDER BY d.created_ms DESC, d.id DESC`,
		ranges, strings.Join(conds, " AND "), order, limit, limit), args...)
}

// statesOf returns the states of a filter, all of them if it names none.
func statesOf(f webhook.DeliveryQuery) (out []int16, err error) {
	if len(f.States) == 0 {
		return []int16{0, 1, 2, 3}, nil
	}
	for _, st := range f.States {
		n, err := stateNumber(st)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out, nil
}

func typesOf(f webhook.DeliveryQuery) []int32 {
	return pg.Column(f.Types, func(t *int) int32 { return int32(*t) })
}

// anyEvents reports whether there are events of the event ID, the agent and the types of a filter,
// each for itself. If there are none, no delivery can match.
func anyEvents(ctx context.Context, q pg.Querier, f webhook.DeliveryQuery) (any bool, err error) {
	if f.EventID == "" && f.AgentID == "" && len(f.Types) == 0 {
		return true, nil
	}
	// The maximum of an index is read from its end, whatever the planner thinks of the number of
	// rows.
	list, err := pg.Collect(ctx, q, pgx.RowTo[bool], `SELECT ($2 = '' OR EXISTS (SELECT 1 FROM event WHERE id = $2))
		AND ($3 = '' OR EXISTS (SELECT 1 FROM agent a WHERE a.project = $1 AND a.id = $3 AND (SELECT max(agent_no) FROM event WHERE agent_no = a.no) IS NOT NULL))
		AND (cardinality($4::int[]) = 0 OR EXISTS (SELECT 1 FROM unnest($4::int[]) t (type) WHERE (SELECT max(no) FROM event WHERE project = $1 AND type = t.type) IS NOT NULL))`,
		pg.Stored(f.Project), pg.Stored(f.EventID), pg.Stored(f.AgentID), typesOf(f))
	return err == nil && list[0], err
}

// Deliveries implements webhook.Log.
func (s *Store) Deliveries(ctx context.Context, q webhook.DeliveryQuery) (page webhook.DeliveryPage, err error) {
	at, err := webhook.ParseCursor(q.Cursor)
	if err != nil {
		return page, err
	}
	limit := min(max(q.Limit, 1), webhook.MaxPage)
	err = s.db.Read(ctx, "list deliveries", func(ctx context.Context) error {
		page = webhook.DeliveryPage{}
		list, err := newest(ctx, s.db.Pool, q, at, math.MaxInt64, limit+1)
		if err != nil {
			return err
		}
		if len(list) > limit {
			list = list[:limit]
			page.Next = list[limit-1].place().String()
		}
		if err := lastTries(ctx, s.db.Pool, list); err != nil {
			return err
		}
		for _, r := range list {
			page.Deliveries = append(page.Deliveries, r.Record)
		}
		return nil
	})
	return page, err
}

// lastTries adds the results of the last attempts.
func lastTries(ctx context.Context, q pg.Querier, list []deliveryRow) error {
	if len(list) == 0 {
		return nil
	}
	ids := make([]int64, len(list))
	at := map[int64]int{}
	for i, r := range list {
		ids[i], at[r.ID] = r.ID, i
	}
	var id int64
	var status int
	var class string
	err := pg.Each(ctx, q, []any{&id, &status, &class}, func() error {
		list[at[id]].LastStatus, list[at[id]].LastClass = status, pg.Shown(class)
		return nil
	}, `SELECT DISTINCT ON (delivery_id) delivery_id, status, error_class FROM attempt WHERE delivery_id = ANY($1)
		ORDER BY delivery_id, n DESC, fence DESC`, ids)
	return err
}

// readDelivery reads one delivery of a project.
func readDelivery(ctx context.Context, q pg.Querier, project string, id int64) (deliveryRow, error) {
	list, err := records(ctx, q, "WHERE d.id = $1 AND d.project = $2", id, pg.Stored(project))
	if err != nil {
		return deliveryRow{}, err
	}
	if len(list) == 0 {
		return deliveryRow{}, fault.New(fault.NotFound, "there is no delivery %d", id)
	}
	return list[0], lastTries(ctx, q, list[:1])
}

// Delivery implements webhook.Log.
func (s *Store) Delivery(ctx context.Context, project string, id int64) (r webhook.Record, tries []webhook.Attempt, err error) {
	err = s.db.Read(ctx, "read delivery", func(ctx context.Context) error {
		row, err := readDelivery(ctx, s.db.Pool, project, id)
		if err != nil {
			return err
		}
		r = row.Record
		tries, err = statements.Attempts(pg.NewStatements(ctx, s.db.Pool), id)
		return err
	})
	return r, tries, err
}

// Cancel implements webhook.Log.
func (s *Store) Cancel(ctx context.Context, project string, id, nowMS int64) (out webhook.Record, err error) {
	err = s.db.Transact(ctx, "cancel delivery", func(ctx context.Context, tx pgx.Tx) error {
		done, err := tx.Exec(ctx, "UPDATE delivery SET state = 3, due_ms = 0, claimed = false, reason = $3, done_ms = $4 WHERE id = $1 AND project = $2 AND state = 0",
			id, pg.Stored(project), webhook.CanceledReason, max(nowMS, 1))
		if err != nil {
			return err
		}
		now, err := readDelivery(ctx, tx, project, id)
		if err == nil && done.RowsAffected() != 1 {
			err = fault.New(fault.Conflict, "delivery %d is %s and not pending", id, now.State)
		}
		out = now.Record
		return err
	})
	if err != nil {
		return webhook.Record{}, err
	}
	return out, nil
}

// Send implements webhook.Log.
func (s *Store) Send(ctx context.Context, m webhook.Event, endpointID string) (out webhook.Record, err error) {
	err = s.db.Transact(ctx, "send event", func(ctx context.Context, tx pgx.Tx) error {
		no, e, err := s.lockEndpoint(ctx, tx, m.Project, endpointID)
		switch {
		case err != nil:
			return err
		case no == 0 || e.Project != m.Project:
			return webhook.ErrNoEndpoint(endpointID)
		case e.Disabled:
			return fault.New(fault.Conflict, "the endpoint is disabled: enable it first")
		}
		var o outbox
		key, err := s.key(ctx, tx, encryption.Of{Project: m.Project})
		if err != nil {
			return err
		}
		o.event(0, key, m, []int64{no})
		out, err = sent(ctx, tx, &o)
		return err
	})
	if pg.Violated(err) != "" {
		err = fault.New(fault.Conflict, "there is an event %q already", m.ID)
	}
	if err == nil {
		s.wake()
	}
	return out, err
}
