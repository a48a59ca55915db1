package sqlite

import (
	"cmp"
	"container/heap"
	"database/sql/driver"
	"slices"
	"strconv"

	"github.com/heardlog/heardlog/webhook"
)

// firstRows is how many rows of a stream are read first. A page takes no row of most streams.
const firstRows = 8

// merge returns the deliveries that a query may select, newest first; wanted applies the rest of
// the query. An index for each order would cost every delivery one more write. There is one index,
// by endpoint and state, and a merge of its ranges. A merge lives in one transaction.
type merge struct {
	c       *conn
	q       webhook.DeliveryQuery
	streams []*stream // a heap; each holds a row
}

// stream is one range of an index.
type stream struct {
	where string
	args  []driver.Value
	at    webhook.Cursor // of the last row that was read
	rows  []deliveryRow  // read and not yet returned
	chunk int            // rows to be read next; 0 = there are no more
}

// newMerge starts a merge after a place.
func newMerge(c *conn, q webhook.DeliveryQuery, names map[int64]string, at webhook.Cursor) (*merge, error) {
	m := &merge{c: c, q: q}
	add := func(chunk int, where string, args ...driver.Value) error {
		s := &stream{where: where, args: args, at: at, chunk: chunk}
		if err := m.read(s); err != nil || len(s.rows) == 0 {
			return err
		}
		m.streams = append(m.streams, s)
		return nil
	}
	switch {
	case q.EventID != "":
		return m, add(webhook.ScanRows, "e.id = ?", q.EventID)
	case q.AgentID != "":
		return m, add(webhook.ScanRows, "e.agent_no = (SELECT no FROM agent WHERE project = ? AND id = ?)", q.Project, q.AgentID)
	}
	for no, id := range names {
		if q.Endpoint != "" && id != q.Endpoint {
			continue
		}
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
	heap.Init(m)
	return m, nil
}

// read reads the next rows of a stream, more of them each time.
func (m *merge) read(s *stream) error {
	if s.chunk == 0 {
		return nil
	}
	from, to := span(m.q.FromMS, m.q.ToMS, s.at)
	args := append(slices.Clone(s.args), from, to, s.at.MS, s.at.ID, int64(s.chunk))
	s.rows = nil
	err := m.c.each("SELECT "+recordColumns+"WHERE "+s.where+` AND d.created_ms >= ? AND d.created_ms < ? AND (d.created_ms, d.id) < (?, ?)
		ORDER BY d.created_ms DESC, d.id DESC LIMIT ?+0`, args, func(row []driver.Value) error {
		s.rows = append(s.rows, readRecord(row))
		return nil
	})
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
		s := m.streams[0]
		out = append(out, s.rows[0])
		if s.rows = s.rows[1:]; len(s.rows) == 0 {
			if err := m.read(s); err != nil {
				return nil, err
			}
		}
		if len(s.rows) == 0 {
			heap.Pop(m)
		} else {
			heap.Fix(m, 0)
		}
	}
	return out, nil
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (m *merge) Len() int { return len(m.streams) }

func (m *merge) Less(i, j int) bool {
	a, b := m.streams[i].rows[0], m.streams[j].rows[0]
	return cmp.Or(cmp.Compare(b.CreatedMS, a.CreatedMS), cmp.Compare(b.ID, a.ID)) < 0
}

func (m *merge) Swap(i, j int) { m.streams[i], m.streams[j] = m.streams[j], m.streams[i] }

func (m *merge) Push(any) {} // no stream is added later

func (m *merge) Pop() any {
	last := len(m.streams) - 1
	s := m.streams[last]
	m.streams = m.streams[:last]
	return s
}
