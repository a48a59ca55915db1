package sqlite

import (
	"context"
	"database/sql/driver"
	"math"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/webhook"
)

// eventRow is an event with its row number.
type eventRow struct {
	webhook.Event
	no int64
}

// Events lists events of a project, newest first.
func (s *Store) Events(ctx context.Context, q webhook.EventQuery) (page webhook.EventPage, err error) {
	at, err := webhook.ParseCursor(q.Cursor)
	if err != nil {
		return page, err
	}
	err = s.readers.do(ctx, func(c *conn) error {
		rows, next, err := webhook.Walk(q.Limit, at, func(at webhook.Cursor) (list []eventRow, err error) {
			from, to := span(q.FromMS, q.ToMS, at)
			err = c.each(`SELECT id, type, agent_id, created_ms, length(body), no FROM event WHERE project = ? AND created_ms >= ? AND created_ms < ?
				AND (created_ms, no) < (?, ?) ORDER BY created_ms DESC, no DESC LIMIT ?+0`, []driver.Value{q.Project, from, to, at.MS, at.ID, int64(webhook.ScanRows)},
				func(row []driver.Value) error {
					list = append(list, eventRow{webhook.Event{
						ID: text(row[0]), Type: int(integer(row[1])), Project: q.Project, AgentID: text(row[2]), CreatedMS: integer(row[3]), Size: int(integer(row[4])),
					}, integer(row[5])})
					return nil
				})
			return list, err
		}, func(m eventRow) bool {
			return (len(q.Types) == 0 || slices.Contains(q.Types, m.Type)) && (q.AgentID == "" || q.AgentID == m.AgentID)
		}, func(m eventRow) webhook.Cursor { return webhook.Cursor{MS: m.CreatedMS, ID: m.no} })
		page.Next = next
		for _, r := range rows {
			page.Events = append(page.Events, r.Event)
		}
		return err
	})
	return page, classify(err, "list events")
}

// Event returns one event with its body.
func (s *Store) Event(ctx context.Context, project, id string) (m webhook.Event, err error) {
	err = s.readers.with(ctx, func(c *conn) error {
		row, err := c.first("SELECT id, type, project, agent_id, created_ms, body FROM event WHERE id = ?", id)
		if err != nil {
			return err
		}
		if row == nil || project != "" && text(row[2]) != project {
			return fault.New(fault.NotFound, "there is no event %q", id)
		}
		m = webhook.Event{
			ID: text(row[0]), Type: int(integer(row[1])), Project: text(row[2]), AgentID: text(row[3]), CreatedMS: integer(row[4]), Body: blob(row[5]),
		}
		m.Size = len(m.Body)
		return nil
	})
	return m, classify(err, "read event")
}

// recordColumns are the columns that readRecord reads.
const recordColumns = `d.id, e.id, e.type, e.project, e.agent_id, d.endpoint_no, d.state, d.attempt, e.created_ms, d.created_ms, d.due_ms, d.done_ms,
	d.reason, d.replay_of, length(e.body), d.event_no FROM delivery d JOIN event e ON e.no = d.event_no `

// deliveryRow is a record with the numbers of its rows.
type deliveryRow struct {
	webhook.Record
	endpoint, event int64
}

func (r deliveryRow) place() webhook.Cursor { return webhook.Cursor{MS: r.CreatedMS, ID: r.ID} }

func readRecord(row []driver.Value) deliveryRow {
	r := deliveryRow{webhook.Record{
		ID: integer(row[0]), EventID: text(row[1]), Type: int(integer(row[2])), Project: text(row[3]), AgentID: text(row[4]), State: stateName(integer(row[6])),
		Attempt: int(integer(row[7])), EventMS: integer(row[8]), CreatedMS: integer(row[9]), DueMS: integer(row[10]),
		DoneMS: integer(row[11]), Reason: text(row[12]), ReplayOf: integer(row[13]), Size: int(integer(row[14])),
	}, integer(row[5]), integer(row[15])}
	if r.State != webhook.Pending {
		r.DueMS = 0
	}
	return r
}

// endpointNames returns the IDs of a project's endpoints by row, including deleted ones.
func endpointNames(c *conn, project string) (map[int64]string, error) {
	out := map[int64]string{}
	err := c.each("SELECT no, coalesce(id, gone_id) FROM endpoint WHERE project = ?", []driver.Value{project}, func(row []driver.Value) error {
		out[integer(row[0])] = text(row[1])
		return nil
	})
	return out, err
}

// wanted returns the part of the filter that a merge does not apply.
func wanted(q webhook.DeliveryQuery, names map[int64]string) func(deliveryRow) bool {
	return func(r deliveryRow) bool {
		return r.Project == q.Project && (q.Endpoint == "" || names[r.endpoint] == q.Endpoint) && (len(q.Types) == 0 || slices.Contains(q.Types, r.Type)) &&
			(len(q.States) == 0 || slices.Contains(q.States, r.State)) && (q.AgentID == "" || r.AgentID == q.AgentID) && (q.EventID == "" || r.EventID == q.EventID)
	}
}

// Deliveries lists deliveries of a project, newest first.
func (s *Store) Deliveries(ctx context.Context, q webhook.DeliveryQuery) (page webhook.DeliveryPage, err error) {
	at, err := webhook.ParseCursor(q.Cursor)
	if err != nil {
		return page, err
	}
	err = s.readers.do(ctx, func(c *conn) error {
		names, err := endpointNames(c, q.Project)
		if err != nil {
			return err
		}
		m, err := newMerge(c, q, names, at)
		if err != nil {
			return err
		}
		rows, next, err := webhook.Walk(q.Limit, at, func(webhook.Cursor) ([]deliveryRow, error) { return m.next(webhook.ScanRows) }, wanted(q, names), deliveryRow.place)
		if err != nil {
			return err
		}
		page.Next = next
		for _, r := range rows {
			if err := s.complete(c, &r, names); err != nil {
				return err
			}
			page.Deliveries = append(page.Deliveries, r.Record)
		}
		return nil
	})
	return page, classify(err, "list deliveries")
}

// complete adds the endpoint's ID, the claim and the last attempt to a record.
func (s *Store) complete(c *conn, r *deliveryRow, names map[int64]string) error {
	r.EndpointID = names[r.endpoint]
	s.addClaim(&r.Record)
	row, err := c.first("SELECT status, error_class FROM attempt WHERE delivery_id = ? ORDER BY n DESC, fence DESC LIMIT 1", r.ID)
	if err == nil && row != nil {
		r.LastStatus, r.LastClass = int(integer(row[0])), text(row[1])
	}
	return err
}

// record returns one delivery of a project, or fault.NotFound.
func (s *Store) record(c *conn, project string, id int64) (deliveryRow, error) {
	row, err := c.first("SELECT "+recordColumns+"WHERE d.id = ?", id)
	if err != nil {
		return deliveryRow{}, classify(err, "read delivery")
	}
	if row == nil || text(row[3]) != project {
		return deliveryRow{}, fault.New(fault.NotFound, "there is no delivery %d", id)
	}
	r := readRecord(row)
	names, err := endpointNames(c, project)
	if err == nil {
		err = s.complete(c, &r, names)
	}
	return r, classify(err, "read delivery")
}

// Delivery returns one delivery with its attempts.
func (s *Store) Delivery(ctx context.Context, project string, id int64) (webhook.Record, []webhook.Attempt, error) {
	var r deliveryRow
	var tries []webhook.Attempt
	err := s.readers.do(ctx, func(c *conn) (err error) {
		if r, err = s.record(c, project, id); err != nil {
			return err
		}
		return c.each(`SELECT n, started_ms, duration_ms, status, error_class, error, response, truncated, detail
			FROM attempt WHERE delivery_id = ? ORDER BY n, fence`, []driver.Value{id}, func(row []driver.Value) error {
			detail, err := webhook.DecodeDetail(text(row[8]))
			tries = append(tries, webhook.Attempt{
				N: int(integer(row[0])), StartedMS: integer(row[1]), DurationMS: integer(row[2]), Status: int(integer(row[3])),
				ErrorClass: text(row[4]), Error: text(row[5]), Response: blob(row[6]), Truncated: integer(row[7]) != 0, Detail: detail,
			})
			return err
		})
	})
	return r.Record, tries, classify(err, "read delivery")
}

// span returns the bounds of a slice, from inclusive and to exclusive. It includes the time of the
// cursor, since SQLite starts its walk at a bound of the time, not at one of time and number.
// Without it each page would pass over all rows before.
func span(from, to int64, at webhook.Cursor) (int64, int64) {
	if to == 0 {
		to = math.MaxInt64
	}
	if at.MS < math.MaxInt64 {
		to = min(to, at.MS+1)
	}
	return from, to
}
