package sqlite

import (
	"context"
	"database/sql/driver"
	"slices"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/codec"
)

const (
	selectMessage = "SELECT seq, rev, turn, client_id, body FROM message "
	insertMessage = "INSERT INTO message (agent_no, seq, rev, turn, shown, client_id, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
)

// Page returns messages of an agent in order of Seq.
func (s *Store) Page(ctx context.Context, no int64, q memory.MessageQuery) ([]memory.Message, error) {
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	var out []memory.Message
	err := s.readers.with(ctx, func(c *conn) (err error) {
		switch {
		case len(q.IDs) > 0:
			out, err = messagesByID(c, no, q.IDs)
		case q.Turn != nil:
			out, err = readMessages(c, selectMessage+"WHERE agent_no = ? AND turn = ? ORDER BY seq", no, *q.Turn)
		default:
			out, err = readMessages(c, selectMessage+"WHERE agent_no = ? AND seq > ? AND rev > ? AND shown >= ? ORDER BY seq LIMIT ?+0",
				no, q.AfterSeq, q.AfterRev, boolean(q.HistoryOnly), int64(max(q.Limit, 1)))
		}
		return err
	})
	return out, classify(err, "read messages")
}

// messagesByID returns the messages that carry one of the client IDs.
func messagesByID(c *conn, no int64, ids []string) (out []memory.Message, err error) {
	for _, id := range ids {
		list, err := readMessages(c, selectMessage+"WHERE agent_no = ? AND client_id = ?", no, id)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	slices.SortFunc(out, func(a, b memory.Message) int { return int(a.Seq - b.Seq) })
	return out, nil
}

// newestMessages returns an agent's newest n messages, oldest first.
//
// The statement says LIMIT ?+0 because SQLite makes a new plan at each execution if the limit is a
// bare parameter.
func newestMessages(c *conn, no int64, n int) ([]memory.Message, error) {
	list, err := readMessages(c, selectMessage+"WHERE agent_no = ? ORDER BY seq DESC LIMIT ?+0", no, int64(n))
	slices.Reverse(list)
	return list, err
}

// readMessages runs a query that begins with selectMessage.
func readMessages(c *conn, sql string, args ...driver.Value) (out []memory.Message, err error) {
	err = c.each(sql, args, func(row []driver.Value) error {
		out = append(out, memory.Message{})
		return readMessage(row, &out[len(out)-1])
	})
	return out, classify(err, "read messages")
}

func readMessage(row []driver.Value, m *memory.Message) error {
	m.Seq, m.Rev, m.TurnID, m.ID = integer(row[0]), integer(row[1]), integer(row[2]), text(row[3])
	return codec.DecodeMessage(text(row[4]), m)
}

// clientID returns the value of the column client_id: null if the client gave no ID.
func clientID(id string) any {
	if id == "" {
		return nil
	}
	return id
}
