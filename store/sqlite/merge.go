package sqlite

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/heardlog/heardlog/store/sqlite/dbfile"
	"github.com/heardlog/heardlog/store/statements"
	"github.com/heardlog/heardlog/webhook"
)

// firstRows is how many rows of a stream are read first. A page takes no row of most streams.
const firstRows = 8

// merge returns the deliveries that a query may select, newest first; wanted applies the rest of
// the query. An index for each order would cost every delivery one more write. There is one index,
// by endpoint and state, and a merge of its ranges. A merge lives in one transaction.
type merge struct {
	c       *dbfile.Conn
	q       webhook.DeliveryQuery
	streams []*stream // by their next rows, the newest last; each has one
}

// stream is one range of an index.
type stream struct {
	where string
	args  []any
	at    webhook.Cursor // of the last row that was read
	rows  []deliveryRow  // read and not yet returned
	chunk int            // rows to be read next; 0 = there are no more
}

// newMerge starts a merge after a place.
func newMerge(c *dbfile.Conn, q webhook.DeliveryQuery, at webhook.Cursor) (*merge, error) {
	m := &merge{c: c, q: q}
	add := func(chunk int, where string, args ...any) error {
		s := &stream{where: where, args: args, at: at, chunk: chunk}
		if err := m.read(s); err != nil || len(s.rows) == 0 {
			return err
		}
		m.put(s)
		return nil
	}
	switch {
	case q.EventID != "":
		return m, add(webhook.ScanRows, "e.id = ?", q.EventID)
	case q.AgentID != "":
		return m, add(webhook.ScanRows, "e.agent_no = (SELECT no FROM agent WHERE project = ? AND id = ?)", q.Project, q.AgentID)
	}
	if any, err := anyEvents(c, q); err != nil || !any {
		return m, err
	}
	endpoints, err := c.Numbers("SELECT no FROM endpoint WHERE project = ?1 AND (?2 = '' OR coalesce(id, gone_id) = ?2)", q.Project, q.Endpoint)
	if err != nil {
		return nil, err
	}
	for _, no := range endpoints {
		for state := int64(statePending); state <= stateCanceled; state++ {
			if len(q.States) > 0 && !slices.Contains(q.States, stateName(state)) {
				continue
			}
			// The state is part of the text. As a parameter it would decide which partial index can
			// be used, and SQLite would make a new plan each time.
			if err := add(firstRows, "d.endpoint_no = ? AND d.state = "+strconv.FormatInt(state, 10), no); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// anyEvents reports whether the project has events of the query's types.
func anyEvents(c *dbfile.Conn, q webhook.DeliveryQuery) (any bool, err error) {
	any = len(q.Types) == 0
	for _, t := range q.Types {
		row, err := c.First("SELECT 1 FROM event INDEXED BY event_type WHERE project = ? AND type = ? LIMIT 1", q.Project, int64(t))
		if err != nil {
			return false, err
		}
		any = any || row != nil
	}
	return any, nil
}

// read reads the next rows of a stream, more of them each time.
func (m *merge) read(s *stream) error {
	if s.chunk == 0 {
		return nil
	}
	from, to := statements.Span(m.q.FromMS, m.q.ToMS, s.at)
	args := append(slices.Clone(s.args), from, to, s.at.MS, s.at.ID, int64(s.chunk))
	var err error
	s.rows, err = dbfile.Collect(m.c, readRecord, selectRecord+"WHERE "+s.where+` AND d.created_ms >= ? AND d.created_ms < ? AND (d.created_ms, d.id) < (?, ?)
		ORDER BY d.created_ms DESC, d.id DESC LIMIT ?+0`, args...)
	if err != nil {
		return err
	}
	if len(s.rows) < s.chunk {
		s.chunk = 0
		return nil
	}
	s.at, s.chunk = s.rows[len(s.rows)-1].place(), min(4*s.chunk, webhook.ScanRows)
	return nil
}

// next returns up to n rows; fewer are the last ones.
func (m *merge) next(n int) ([]deliveryRow, error) {
	var out []deliveryRow
	for len(out) < n && len(m.streams) > 0 {
		last := len(m.streams) - 1
		s := m.streams[last]
		m.streams = m.streams[:last]
		out = append(out, s.rows[0])
		if s.rows = s.rows[1:]; len(s.rows) == 0 {
			if err := m.read(s); err != nil {
				return nil, err
			}
		}
		if len(s.rows) > 0 {
			m.put(s)
		}
	}
	return out, nil
}

// put adds a stream at its place.
func (m *merge) put(s *stream) {
	at, _ := slices.BinarySearchFunc(m.streams, s, func(a, b *stream) int {
		return cmp.Or(cmp.Compare(a.rows[0].CreatedMS, b.rows[0].CreatedMS), cmp.Compare(a.rows[0].ID, b.rows[0].ID))
	})
	m.streams = slices.Insert(m.streams, at, s)
}
