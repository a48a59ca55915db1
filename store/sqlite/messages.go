package sqlite

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
	"github.com/heardlog/heardlog/store/statements"
)

const selectMessage = "SELECT seq, rev, turn, client_id, body FROM message "

// insertMessage stores a message with a packed body, which key seals.
func (t *tx) insertMessage(no int64, key encryption.Key, m *memory.Message, body []byte) error {
	_, err := t.Exec("INSERT INTO message (agent_no, seq, rev, turn, shown, client_id, body) VALUES (?, ?, ?, ?, ?, ?, ?)",
		no, m.Seq, m.Rev, m.TurnID, m.InHistory(), clientID(m.ID), withSum(no, m, statements.MessageBody(key, no, m.Seq, body)))
	return err
}

// Page returns messages of an agent in order of Seq.
func (s *Store) Page(ctx context.Context, no int64, q memory.MessageQuery) ([]memory.Message, error) {
	var out []memory.Message
	err := s.db.Read(ctx, "read messages", func(c *dbfile.Conn) (err error) {
		switch {
		case len(q.IDs) > 0:
			out, err = s.messagesByID(c, no, q.IDs)
		case q.Turn != nil:
			out, err = s.readMessages(c, selectMessage+"WHERE agent_no = ? AND turn = ? ORDER BY seq", no, *q.Turn)
		default:
			out, err = s.readUpTo(c, q.Bytes, selectMessage+"WHERE agent_no = ? AND seq > ? AND rev > ? AND shown >= ? ORDER BY seq LIMIT ?+0",
				no, q.AfterSeq, q.AfterRev, q.HistoryOnly, int64(max(q.Limit, 1)))
		}
		return err
	})
	return out, err
}

// messagesByID returns the messages that carry one of the client IDs.
func (s *Store) messagesByID(c *dbfile.Conn, no int64, ids []string) (out []memory.Message, err error) {
	for _, id := range ids {
		list, err := s.readMessages(c, selectMessage+"WHERE agent_no = ? AND client_id = ?", no, id)
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
func (s *Store) newestMessages(c *dbfile.Conn, no int64, n int) ([]memory.Message, error) {
	list, err := s.readMessages(c, selectMessage+"WHERE agent_no = ? ORDER BY seq DESC LIMIT ?+0", no, int64(n))
	slices.Reverse(list)
	return list, err
}

// readMessages runs a query that begins with selectMessage. Its first argument is the number of the
// agent.
func (s *Store) readMessages(c *dbfile.Conn, sql string, args ...any) (out []memory.Message, err error) {
	return s.readUpTo(c, 0, sql, args...)
}

var errFull = errors.New("as many bytes as were asked for")

// readUpTo is readMessages, but stops after the message with which they have size bytes; 0 is any
// number.
func (s *Store) readUpTo(c *dbfile.Conn, size int64, sql string, args ...any) (out []memory.Message, err error) {
	var read int64
	err = c.Each(sql, args, func(row dbfile.Row) error {
		out = append(out, memory.Message{})
		m := &out[len(out)-1]
		if err := s.readMessage(args[0].(int64), row, m); err != nil || size == 0 {
			return err
		}
		if read += m.Bytes(); read >= size {
			return errFull
		}
		return nil
	})
	if errors.Is(err, errFull) {
		err = nil
	}
	return out, err
}

// readMessage reads a message of the agent with number no.
func (s *Store) readMessage(no int64, row dbfile.Row, m *memory.Message) error {
	m.Seq, m.Rev, m.TurnID, m.ID = row.Int(0), row.Int(1), row.Int(2), row.Text(3)
	body, err := checkSum(no, m, row.Raw(4))
	if err != nil {
		return err
	}
	return statements.OpenMessage(s.sealer, no, body, m)
}

// sumDigits is the length of the checksum behind a stored body.
const sumDigits = 8

// withSum returns the stored form of a message's body: the body, and behind it a checksum of the
// whole row, CRC-32C in hexadecimal. It is for damage of the disk, not against forgery.
func withSum(no int64, m *memory.Message, body []byte) []byte {
	return append(slices.Clip(body), rowSum(no, m, body)...)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// rowSum returns the checksum of a message's row.
func rowSum(no int64, m *memory.Message, body []byte) string {
	numbers := [...]int64{no, m.Seq, m.Rev, m.TurnID, int64(len(m.ID))}
	row := make([]byte, 0, len(numbers)*binary.MaxVarintLen64+len(m.ID)+len(body))
	for _, n := range numbers {
		row = binary.AppendVarint(row, n)
	}
	row = append(append(row, m.ID...), body...)
	return hex.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.Checksum(row, castagnoli)))
}

// checkSum returns the body of a stored message without its checksum. It fails if the row is not
// as it was written.
func checkSum(no int64, m *memory.Message, stored []byte) ([]byte, error) {
	at := max(0, len(stored)-sumDigits)
	if body := stored[:at]; rowSum(no, m, body) == string(stored[at:]) {
		return body, nil
	}
	return nil, dbfile.Damaged(fmt.Errorf("message %d of agent number %d is not as it was written", m.Seq, no))
}

// clientID returns the value of the column client_id: null if the client gave no ID.
func clientID(id string) any {
	if id == "" {
		return nil
	}
	return id
}
