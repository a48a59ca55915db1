package sqlite

import (
	"context"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
	"github.com/heardlog/heardlog/store/statements"
	"github.com/heardlog/heardlog/webhook"
)

// Events lists events of a project, newest first.
func (s *Store) Events(ctx context.Context, q webhook.EventQuery) (page webhook.EventPage, err error) {
	err = s.db.Read(ctx, "list events", func(c *dbfile.Conn) (err error) {
		page, err = statements.Events(reading{c}, q)
		return err
	})
	return page, err
}

// Event returns one event with its body.
func (s *Store) Event(ctx context.Context, project, id string) (m webhook.Event, err error) {
	err = s.db.Read(ctx, "read event", func(c *dbfile.Conn) (err error) {
		m, err = statements.Event(reading{c}, s.sealer, project, id)
		return err
	})
	return m, err
}

// AgentEvents implements webhook.Log.
func (s *Store) AgentEvents(ctx context.Context, project, agentID string, each func(webhook.Event) error) error {
	return s.db.Read(ctx, "read an agent's events", func(c *dbfile.Conn) error {
		return statements.AgentEvents(reading{c}, s.sealer, project, agentID, each)
	})
}

// selectRecord reads deliveries as records.
const selectRecord = `SELECT d.id, e.id, e.type, e.project, e.agent_id, d.endpoint_no, d.state, d.attempt, e.created_ms, d.created_ms, d.due_ms, d.done_ms,
	d.reason, d.replay_of, coalesce(e.size, length(e.body)), d.event_no, coalesce(p.id, p.gone_id)
	FROM delivery d JOIN event e ON e.no = d.event_no LEFT JOIN endpoint p ON p.no = d.endpoint_no `

// deliveryRow is a record with the numbers of its rows.
type deliveryRow struct {
	webhook.Record
	endpoint, event int64
}

func (r deliveryRow) place() webhook.Cursor { return webhook.Cursor{MS: r.CreatedMS, ID: r.ID} }

func readRecord(row dbfile.Row) (deliveryRow, error) {
	r := deliveryRow{webhook.Record{
		ID: row.Int(0), EndpointID: row.Text(16), EventID: row.Text(1), Type: int(row.Int(2)), Project: row.Text(3), AgentID: row.Text(4), State: stateName(row.Int(6)),
		Attempt: int(row.Int(7)), EventMS: row.Int(8), CreatedMS: row.Int(9), DueMS: row.Int(10),
		DoneMS: row.Int(11), Reason: row.Text(12), ReplayOf: row.Int(13), Size: int(row.Int(14)),
	}, row.Int(5), row.Int(15)}
	if r.State != webhook.Pending {
		r.DueMS = 0
	}
	return r, nil
}

// wanted returns the part of the filter that a merge does not apply.
func wanted(q webhook.DeliveryQuery) func(deliveryRow) bool {
	return func(r deliveryRow) bool {
		return r.Project == q.Project && (q.Endpoint == "" || r.EndpointID == q.Endpoint) && (len(q.Types) == 0 || slices.Contains(q.Types, r.Type)) &&
			(len(q.States) == 0 || slices.Contains(q.States, r.State)) && (q.AgentID == "" || r.AgentID == q.AgentID) && (q.EventID == "" || r.EventID == q.EventID)
	}
}

// Deliveries lists deliveries of a project, newest first.
func (s *Store) Deliveries(ctx context.Context, q webhook.DeliveryQuery) (page webhook.DeliveryPage, err error) {
	at, err := webhook.ParseCursor(q.Cursor)
	if err != nil {
		return page, err
	}
	err = s.db.Read(ctx, "list deliveries", func(c *dbfile.Conn) error {
		m, err := newMerge(c, q, at)
		if err != nil {
			return err
		}
		rows, next, err := webhook.Walk(q.Limit, at, func(webhook.Cursor) ([]deliveryRow, error) { return m.next(webhook.ScanRows) }, wanted(q), deliveryRow.place)
		if err != nil {
			return err
		}
		page.Next = next
		for _, r := range rows {
			if err := s.complete(c, &r.Record); err != nil {
				return err
			}
			page.Deliveries = append(page.Deliveries, r.Record)
		}
		return nil
	})
	return page, err
}

// complete adds the claim and the last attempt to a record.
func (s *Store) complete(c *dbfile.Conn, r *webhook.Record) error {
	s.addClaim(r)
	row, err := c.First("SELECT status, error_class FROM attempt WHERE delivery_id = ? ORDER BY n DESC, fence DESC LIMIT 1", r.ID)
	if err == nil && row != nil {
		r.LastStatus, r.LastClass = int(row.Int(0)), row.Text(1)
	}
	return err
}

// record returns one delivery of a project, or fault.NotFound.
func (s *Store) record(c *dbfile.Conn, project string, id int64) (deliveryRow, error) {
	list, err := dbfile.Collect(c, readRecord, selectRecord+"WHERE d.id = ?", id)
	switch {
	case err != nil:
		return deliveryRow{}, err
	case len(list) == 0 || list[0].Project != project:
		return deliveryRow{}, fault.New(fault.NotFound, "there is no delivery %d", id)
	}
	return list[0], s.complete(c, &list[0].Record)
}

// Delivery returns one delivery with its attempts.
func (s *Store) Delivery(ctx context.Context, project string, id int64) (webhook.Record, []webhook.Attempt, error) {
	var r deliveryRow
	var tries []webhook.Attempt
	err := s.db.Read(ctx, "read delivery", func(c *dbfile.Conn) (err error) {
		if r, err = s.record(c, project, id); err != nil {
			return err
		}
		tries, err = statements.Attempts(reading{c}, id)
		return err
	})
	return r.Record, tries, err
}
