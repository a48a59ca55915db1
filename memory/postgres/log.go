package postgres

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/webhook"
)

// decodeDetail reads the column attempt.detail.
func decodeDetail(s string) (webhook.Detail, error) {
	d, err := webhook.DecodeDetail(s)
	if err != nil {
		return d, fmt.Errorf("attempt: %w: %w", err, errBadRow)
	}
	return d, nil
}

// span returns the bounds of a list in time, from inclusive and to exclusive.
func span(from, to int64) (int64, int64) {
	if to == 0 {
		to = math.MaxInt64
	}
	return from, to
}

// eventRow is an event with its row number.
type eventRow struct {
	webhook.Event
	no int64
}

// Events implements webhook.Log.
func (s *Store) Events(ctx context.Context, q webhook.EventQuery) (page webhook.EventPage, err error) {
	at, err := webhook.ParseCursor(q.Cursor)
	if err != nil {
		return page, err
	}
	from, to := span(q.FromMS, q.ToMS)
	err = s.read(ctx, "list events", func(ctx context.Context) error {
		list, next, err := webhook.Walk(q.Limit, at, func(at webhook.Cursor) ([]eventRow, error) {
			rows, err := s.pool.Query(ctx, `SELECT id, type, agent_id, created_ms, length(body), no FROM event WHERE project = $1 AND created_ms >= $2 AND created_ms < $3
				AND (created_ms, no) < ($4, $5) ORDER BY created_ms DESC, no DESC LIMIT $6`, stored(q.Project), from, to, at.MS, at.ID, webhook.ScanRows)
			if err != nil {
				return nil, err
			}
			return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e eventRow, err error) {
				err = row.Scan(&e.ID, &e.Type, &e.AgentID, &e.CreatedMS, &e.Size, &e.no)
				e.ID, e.AgentID, e.Project = shown(e.ID), shown(e.AgentID), q.Project
				return e, err
			})
		}, func(m eventRow) bool {
			return (len(q.Types) == 0 || slices.Contains(q.Types, m.Type)) && (q.AgentID == "" || q.AgentID == m.AgentID)
		}, func(m eventRow) webhook.Cursor { return webhook.Cursor{MS: m.CreatedMS, ID: m.no} })
		page = webhook.EventPage{Next: next}
		for _, r := range list {
			page.Events = append(page.Events, r.Event)
		}
		return err
	})
	return page, err
}

// Event implements webhook.Log.
func (s *Store) Event(ctx context.Context, project, id string) (m webhook.Event, err error) {
	err = s.read(ctx, "read event", func(ctx context.Context) error {
		err := s.pool.QueryRow(ctx, "SELECT id, type, project, agent_id, created_ms, body FROM event WHERE id = $1 AND ($2 = '' OR project = $2)", stored(id), stored(project)).
			Scan(&m.ID, &m.Type, &m.Project, &m.AgentID, &m.CreatedMS, &m.Body)
		if noRows(err) {
			return fault.New(fault.NotFound, "there is no event %q", id)
		}
		m.ID, m.Project, m.AgentID, m.Size = shown(m.ID), shown(m.Project), shown(m.AgentID), len(m.Body)
		return err
	})
	return m, err
}

// recordSQL reads deliveries as records, with the rows that they refer to.
const recordSQL = `SELECT d.id, e.id, e.type, e.project, e.agent_id, coalesce(p.id, p.gone_id, ''), d.state, d.claimed, d.attempt, e.created_ms, d.created_ms, d.due_ms,
	d.done_ms, d.reason, d.replay_of, length(e.body), d.endpoint_no, p.id IS NOT NULL FROM delivery d JOIN event e ON e.no = d.event_no LEFT JOIN endpoint p ON p.no = d.endpoint_no `

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
	for _, text := range []*string{&r.EventID, &r.Project, &r.AgentID, &r.EndpointID, &r.Reason} {
		*text = shown(*text)
	}
	if r.State = stateName(state); r.State != webhook.Pending {
		r.DueMS = 0
	}
	return r, err
}

// records reads deliveries; sql is what follows recordSQL.
func records(ctx context.Context, q querier, rest string, args ...any) ([]deliveryRow, error) {
	rows, err := q.Query(ctx, recordSQL+rest, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanRecord)
}

// selection returns the condition of a filter.
func selection(q webhook.DeliveryQuery) (where string, args []any, err error) {
	from, to := span(q.FromMS, q.ToMS)
	conds := []string{"d.project = $1", "d.created_ms >= $2", "d.created_ms < $3"}
	args = []any{stored(q.Project), from, to}
	add := func(cond string, arg any) {
		args = append(args, arg)
		conds = append(conds, fmt.Sprintf(cond, len(args)))
	}
	if q.Endpoint != "" {
		add("d.endpoint_no IN (SELECT no FROM endpoint WHERE id = $%[1]d OR gone_id = $%[1]d)", stored(q.Endpoint))
	}
	if len(q.States) > 0 {
		states := make([]int16, len(q.States))
		for i, st := range q.States {
			if states[i], err = stateNumber(st); err != nil {
				return "", nil, err
			}
		}
		add("d.state = ANY($%d)", states)
	}
	if q.EventID != "" {
		add("d.event_no = (SELECT no FROM event WHERE id = $%d)", stored(q.EventID))
	}
	if q.AgentID != "" {
		add("e.agent_id = $%d", stored(q.AgentID))
		conds = append(conds, "e.agent_no = ANY(ARRAY(SELECT no FROM agent WHERE project = $1 AND id = $"+fmt.Sprint(len(args))+"))")
	}
	if len(q.Types) > 0 {
		types := make([]int32, len(q.Types))
		for i, t := range q.Types {
			types[i] = int32(t)
		}
		add("e.type = ANY($%d)", types)
	}
	return "WHERE " + strings.Join(conds, " AND "), args, nil
}

// Deliveries implements webhook.Log.
func (s *Store) Deliveries(ctx context.Context, q webhook.DeliveryQuery) (page webhook.DeliveryPage, err error) {
	at, err := webhook.ParseCursor(q.Cursor)
	if err != nil {
		return page, err
	}
	where, args, err := selection(q)
	if err != nil {
		return page, err
	}
	limit := min(max(q.Limit, 1), webhook.MaxPage)
	err = s.read(ctx, "list deliveries", func(ctx context.Context) error {
		page = webhook.DeliveryPage{}
		n := len(args)
		list, err := records(ctx, s.pool, fmt.Sprintf("%s AND (d.created_ms, d.id) < ($%d, $%d) ORDER BY d.created_ms DESC, d.id DESC LIMIT %d", where, n+1, n+2, limit+1),
			append(slices.Clone(args), at.MS, at.ID)...)
		if err != nil {
			return err
		}
		if len(list) > limit {
			list = list[:limit]
			page.Next = list[limit-1].place().String()
		}
		if err := lastTries(ctx, s.pool, list); err != nil {
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
func lastTries(ctx context.Context, q querier, list []deliveryRow) error {
	if len(list) == 0 {
		return nil
	}
	ids := make([]int64, len(list))
	at := map[int64]int{}
	for i, r := range list {
		ids[i], at[r.ID] = r.ID, i
	}
	rows, err := q.Query(ctx, `SELECT DISTINCT ON (delivery_id) delivery_id, status, error_class FROM attempt WHERE delivery_id = ANY($1)
		ORDER BY delivery_id, n DESC, fence DESC`, ids)
	if err != nil {
		return err
	}
	var id int64
	var status int
	var class string
	_, err = pgx.ForEachRow(rows, []any{&id, &status, &class}, func() error {
		list[at[id]].LastStatus, list[at[id]].LastClass = status, shown(class)
		return nil
	})
	return err
}

// record reads one delivery of a project.
func record(ctx context.Context, q querier, project string, id int64) (deliveryRow, error) {
	list, err := records(ctx, q, "WHERE d.id = $1 AND d.project = $2", id, stored(project))
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
	err = s.read(ctx, "read delivery", func(ctx context.Context) error {
		list, err := records(ctx, s.pool, "WHERE d.id = $1 AND d.project = $2", id, stored(project))
		if err == nil && len(list) == 0 {
			err = fault.New(fault.NotFound, "there is no delivery %d", id)
		}
		if err == nil {
			err = lastTries(ctx, s.pool, list)
		}
		if err != nil {
			return err
		}
		r = list[0].Record
		rows, err := s.pool.Query(ctx, `SELECT n, started_ms, duration_ms, status, error_class, error, response, truncated, detail
			FROM attempt WHERE delivery_id = $1 ORDER BY n, fence`, id)
		if err != nil {
			return err
		}
		tries, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (a webhook.Attempt, err error) {
			var detail string
			if err := row.Scan(&a.N, &a.StartedMS, &a.DurationMS, &a.Status, &a.ErrorClass, &a.Error, &a.Response, &a.Truncated, &detail); err != nil {
				return a, err
			}
			a.ErrorClass, a.Error = shown(a.ErrorClass), shown(a.Error)
			a.Detail, err = decodeDetail(shown(detail))
			return a, err
		})
		return err
	})
	return r, tries, err
}

// Cancel implements webhook.Log.
func (s *Store) Cancel(ctx context.Context, project string, id, nowMS int64) (out webhook.Record, err error) {
	err = s.transact(ctx, "cancel delivery", func(ctx context.Context, tx pgx.Tx) error {
		done, err := tx.Exec(ctx, "UPDATE delivery SET state = 3, due_ms = 0, claimed = false, reason = $3, done_ms = $4 WHERE id = $1 AND project = $2 AND state = 0",
			id, stored(project), webhook.CanceledReason, max(nowMS, 1))
		if err != nil {
			return err
		}
		now, err := record(ctx, tx, project, id)
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
	err = s.transact(ctx, "send event", func(ctx context.Context, tx pgx.Tx) error {
		no, e, err := s.lockEndpoint(ctx, tx, m.Project, endpointID)
		switch {
		case err != nil:
			return err
		case no == 0 || e.Project != m.Project:
			return noEndpoint(endpointID)
		case e.Disabled:
			return fault.New(fault.Conflict, "the endpoint is disabled: enable it first")
		}
		var o outbox
		o.event(0, m, []int64{no})
		out, err = sent(ctx, tx, &o)
		return err
	})
	if violated(err) != "" {
		err = fault.New(fault.Conflict, "there is an event %q already", m.ID)
	}
	if err == nil {
		s.wake()
	}
	return out, err
}
