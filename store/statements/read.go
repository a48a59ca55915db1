package statements

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/codec"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/webhook"
)

// Span returns the bounds of a list in time after a place, from inclusive and to exclusive. They
// include the time of the place, since SQLite starts its walk at a bound of the time, not at one of
// time and number. Without it each page would pass over all rows before.
func Span(from, to int64, at webhook.Cursor) (int64, int64) {
	if to == 0 {
		to = math.MaxInt64
	}
	if at.MS < math.MaxInt64 {
		to = min(to, at.MS+1)
	}
	return from, to
}

// eventRow is an event with its row number.
type eventRow struct {
	webhook.Event
	no int64
}

// Events implements webhook.Log.
func Events(db Reader, q webhook.EventQuery) (page webhook.EventPage, err error) {
	at, err := webhook.ParseCursor(q.Cursor)
	if err != nil {
		return page, err
	}
	list, next, err := webhook.Walk(q.Limit, at, func(at webhook.Cursor) (list []eventRow, err error) {
		from, to := Span(q.FromMS, q.ToMS, at)
		err = db.Each(`SELECT id, type, agent_id, created_ms, coalesce(size, length(body)), no FROM event WHERE project = ? AND created_ms >= ? AND created_ms < ?
			AND (created_ms, no) < (?, ?) ORDER BY created_ms DESC, no DESC LIMIT ?+0`, []any{q.Project, from, to, at.MS, at.ID, int64(webhook.ScanRows)}, func(row Row) error {
			e := webhook.Event{ID: row.Text(0), Type: int(row.Int(1)), Project: q.Project, AgentID: row.Text(2), CreatedMS: row.Int(3), Size: int(row.Int(4))}
			list = append(list, eventRow{e, row.Int(5)})
			return nil
		})
		return list, err
	}, func(e eventRow) bool {
		return (len(q.Types) == 0 || slices.Contains(q.Types, e.Type)) && (q.AgentID == "" || q.AgentID == e.AgentID)
	}, func(e eventRow) webhook.Cursor { return webhook.Cursor{MS: e.CreatedMS, ID: e.no} })
	page.Next = next
	for _, r := range list {
		page.Events = append(page.Events, r.Event)
	}
	return page, err
}

// Event implements webhook.Log.
func Event(db Reader, s encryption.Sealer, project, id string) (e webhook.Event, err error) {
	var stored []byte
	_, err = first(db, func(row Row) {
		e = webhook.Event{ID: row.Text(0), Type: int(row.Int(1)), Project: row.Text(2), AgentID: row.Text(3), CreatedMS: row.Int(4)}
		stored = bytes.Clone(row.Blob(5))
	}, "SELECT id, type, project, agent_id, created_ms, body FROM event WHERE id = ?", id)
	if err == nil && (e.ID == "" || project != "" && e.Project != project) {
		err = fault.New(fault.NotFound, "there is no event %q", id)
	}
	if err == nil {
		e.Body, err = OpenEvent(s, e.ID, stored)
	}
	if err != nil {
		return webhook.Event{}, err
	}
	e.Size = len(e.Body)
	return e, nil
}

// AgentEvents implements webhook.Log.
func AgentEvents(db Reader, s encryption.Sealer, project, agentID string, each func(webhook.Event) error) error {
	return db.Each(`SELECT e.id, e.type, e.created_ms, e.body FROM agent a JOIN event e ON e.agent_no = a.no
		WHERE a.project = ? AND a.id = ? ORDER BY e.no`, []any{project, agentID}, func(row Row) error {
		body, err := OpenEvent(s, row.Text(0), row.Blob(3))
		if err != nil {
			return err
		}
		return each(webhook.Event{ID: row.Text(0), Type: int(row.Int(1)), Project: project, AgentID: agentID, CreatedMS: row.Int(2), Size: len(body), Body: body})
	})
}

// Attempts returns the attempts of a delivery.
func Attempts(db Reader, delivery int64) (list []webhook.Attempt, err error) {
	err = db.Each("SELECT t.n, "+attemptColumns+" FROM attempt t WHERE t.delivery_id = ? ORDER BY t.n, t.fence", []any{delivery}, func(row Row) error {
		a, err := readAttempt(row, 0)
		list = append(list, a)
		return err
	})
	return list, err
}

// attemptColumns are the columns of an attempt after its number.
const attemptColumns = "t.started_ms, t.duration_ms, t.status, t.error_class, t.error, t.response, t.truncated, t.detail"

// readAttempt reads an attempt whose number is in column i. An error is about its details.
func readAttempt(row Row, i int) (webhook.Attempt, error) {
	detail, err := webhook.DecodeDetail(row.Text(i + 8))
	if err != nil {
		err = errors.Join(err, codec.ErrUnreadable)
	}
	return webhook.Attempt{
		N: int(row.Int(i)), StartedMS: row.Int(i + 1), DurationMS: row.Int(i + 2), Status: int(row.Int(i + 3)), ErrorClass: row.Text(i + 4), Error: row.Text(i + 5),
		Response: bytes.Clone(row.Blob(i + 6)), Truncated: row.Bool(i + 7), Detail: detail,
	}, err
}

// Record implements record.Store.
func Record(db Reader, s encryption.Sealer, at record.Space, id string) (record.Record, error) {
	r := record.Record{ID: id}
	var opened error
	found, err := first(db, func(row Row) {
		r.Rev, r.UpdatedMS = row.Int(0), row.Int(1)
		r.Body, opened = OpenRecord(s, row.Blob(2), at, id)
	}, `SELECT r.rev, r.updated_ms, r.body FROM record_space s JOIN record r ON r.space_no = s.no
		WHERE s.project = ? AND s.name = ? AND s.user_id = ? AND r.id = ? AND r.body IS NOT NULL`, at.Project, at.Name, at.User, id)
	switch {
	case err != nil:
		return record.Record{}, err
	case !found:
		return record.Record{}, record.ErrNoRecord(id)
	}
	return r, opened
}

// OpenRecord returns the body of a record, which is not nil.
func OpenRecord(s encryption.Sealer, sealed []byte, at record.Space, id string) ([]byte, error) {
	plain, err := s.Open(sealed, RecordOwner(at, id))
	return append([]byte{}, plain...), err
}

// SpaceRow is a space of records with its number and revision.
type SpaceRow struct {
	No, Rev int64
	At      record.Space
}

// Spaces returns the spaces of a project whose names begin with prefix, of one user or, with an
// empty user, of all, after the given one. It leaves out those with fewer than least records.
func Spaces(db Reader, project, user, prefix string, after record.Space, least, limit int) (list []SpaceRow, err error) {
	sql, args := "SELECT no, rev, name, user_id FROM record_space WHERE project = ? AND name >= ? AND name <> '' AND (name, user_id) > (?, ?) AND n >= ?",
		[]any{project, prefix, after.Name, after.User, int64(least)}
	if user != "" {
		sql, args = sql+" AND user_id = ? AND user_id <> ''", append(args, user)
	}
	err = db.Each(sql+" ORDER BY name, user_id LIMIT ?+0", append(args, int64(max(limit, 1))), func(row Row) error {
		if at := (record.Space{Project: project, Name: row.Text(2), User: row.Text(3)}); strings.HasPrefix(at.Name, prefix) {
			list = append(list, SpaceRow{row.Int(0), row.Int(1), at})
		}
		return nil
	})
	return list, err
}

// RecordSpaces implements record.Store.
func RecordSpaces(db Reader, project, prefix string, after record.Space, limit int) (list []record.Space, err error) {
	rows, err := Spaces(db, project, "", prefix, after, 1, limit)
	for _, r := range rows {
		list = append(list, r.At)
	}
	return list, err
}

// RecordIDs returns the IDs of records of a space of no user after the given one, in their order,
// without their bodies.
func RecordIDs(db Reader, project, name, after string, limit int) (ids []string, err error) {
	err = db.Each(`SELECT r.id FROM record_space s JOIN record r ON r.space_no = s.no
		WHERE s.project = ? AND s.name = ? AND s.user_id = '' AND r.id > ? AND r.body IS NOT NULL ORDER BY r.id LIMIT ?+0`,
		[]any{project, name, after, int64(limit)}, func(row Row) error {
			ids = append(ids, row.Text(0))
			return nil
		})
	return ids, err
}
