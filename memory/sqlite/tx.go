package sqlite

import (
	"database/sql/driver"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/codec"
)

// tx is what a decision reads. It answers from the view wherever that holds enough and asks the write connection otherwise,
// which sees what the group has written so far.
type tx struct {
	g *group
	k key
	v *view
}

var _ memory.AgentView = (*tx)(nil)

// Head gives the agent's head.
func (t *tx) Head() memory.Head { return t.v.head }

// Last gives the newest n messages.
func (t *tx) Last(n int) ([]memory.Message, error) {
	if n <= 0 {
		return nil, nil
	}
	if list, ok := t.v.newest(n, false); ok {
		return list, nil
	}
	list, err := loadNewest(t.g.w, t.v.no, max(n, tailLoad), false)
	if err != nil {
		return nil, err
	}
	if full := len(list) < max(n, tailLoad); len(list) > len(t.v.tail) {
		// The decision is likely to look again, and so is the next one. The view stays this group's own until the commit.
		t.v = t.v.withTail(list, full)
		t.g.works[t.k] = t.v
	}
	return list[max(0, len(list)-n):], nil
}

// ByIDs gives the messages with these client ids.
func (t *tx) ByIDs(ids []string) (map[string]memory.Message, error) {
	out := map[string]memory.Message{}
	if len(ids) == 0 {
		return out, nil
	}
	want := make(map[string]bool, len(ids))
	for _, id := range ids {
		want[id] = id != ""
	}
	for i, p := range t.v.tail {
		if _, _, id := p.found(); want[id] {
			out[id] = t.v.message(i)
		}
	}
	if t.v.full {
		return out, nil
	}
	for id, wanted := range want {
		if _, found := out[id]; found || !wanted {
			continue
		}
		list, err := loadMessages(t.g.w, selectMessage+"WHERE agent_no = ? AND client_id = ?", t.v.no, id)
		if err != nil {
			return nil, err
		}
		if len(list) > 0 {
			out[id] = list[0]
		}
	}
	return out, nil
}

// Turn gives the messages of one turn.
//
// In order of Seq turns do not go down, so a tail that begins with an earlier turn holds the whole of this one. Where a turn
// did go down (hints.turn tells), the database is asked.
func (t *tx) Turn(turnID int64) ([]memory.Message, error) {
	ordered := t.v.hint.turn < 0
	if ordered && turnID > t.v.head.LastTurn {
		return nil, nil
	}
	first := int64(-1)
	if len(t.v.tail) > 0 {
		_, first, _ = t.v.tail[0].found()
	}
	if t.v.full || ordered && len(t.v.tail) > 0 && first < turnID {
		var out []memory.Message
		for i, p := range t.v.tail {
			if _, turn, _ := p.found(); turn == turnID {
				out = append(out, t.v.message(i))
			}
		}
		return out, nil
	}
	if ordered && t.v.tail == nil {
		if _, err := t.Last(tailLoad); err != nil {
			return nil, err
		}
		if t.v.tail != nil {
			return t.Turn(turnID)
		}
	}
	return loadMessages(t.g.w, selectMessage+"WHERE agent_no = ? AND turn = ? ORDER BY seq", t.v.no, turnID)
}

// Seq gives one message.
func (t *tx) Seq(seq int64) (memory.Message, error) {
	if t.v.head.Last.Seq == seq && seq > 0 {
		return t.v.head.Last, nil
	}
	if i, ok := t.v.find(seq); ok {
		return t.v.message(i), nil
	} else if t.v.full || i > 0 || seq > t.v.head.Last.Seq {
		return memory.Message{}, noSeq(seq)
	}
	list, err := loadMessages(t.g.w, selectMessage+"WHERE agent_no = ? AND seq = ?", t.v.no, seq)
	if err != nil {
		return memory.Message{}, err
	}
	if len(list) == 0 {
		return memory.Message{}, noSeq(seq)
	}
	return list[0], nil
}

func noSeq(seq int64) error { return fault.New(fault.NotFound, "there is no message with seq %d", seq) }

const selectMessage = "SELECT seq, rev, turn, client_id, body FROM message "

// tailLoad is how many messages are read at least when an agent's newest are wanted: the default history.
const tailLoad = memory.DefaultMaxHistory

// loadMessages reads messages with a query that begins with selectMessage.
func loadMessages(c *conn, sql string, args ...driver.Value) ([]memory.Message, error) {
	return appendMessages(nil, c, sql, args...)
}

func appendMessages(out []memory.Message, c *conn, sql string, args ...driver.Value) ([]memory.Message, error) {
	err := c.each(sql, args, func(row []driver.Value) error {
		out = append(out, memory.Message{})
		return readMessage(row, &out[len(out)-1])
	})
	if err != nil {
		return nil, classify(err, "read messages")
	}
	return out, nil
}

func readMessage(row []driver.Value, m *memory.Message) error {
	m.Seq, m.Rev, m.TurnID, m.ID = integer(row[0]), integer(row[1]), integer(row[2]), text(row[3])
	return codec.DecodeMessage(text(row[4]), m)
}

// loadNewest reads the newest n messages, oldest first.
//
// LIMIT ?+0 and not LIMIT ?: SQLite looks at the value of a bare parameter when it plans, and so plans anew at each
// execution, which took a tenth of the read.
func loadNewest(c *conn, no int64, n int, historyOnly bool) ([]memory.Message, error) {
	sql := selectMessage + "WHERE agent_no = ? ORDER BY seq DESC LIMIT ?+0"
	if historyOnly {
		sql = selectMessage + "WHERE agent_no = ? AND shown = 1 ORDER BY seq DESC LIMIT ?+0"
	}
	list, err := appendMessages(make([]memory.Message, 0, min(n, tailLoad)), c, sql, no, int64(n))
	for i, j := 0, len(list)-1; i < j; i, j = i+1, j-1 {
		list[i], list[j] = list[j], list[i]
	}
	return list, err
}
