package postgres

import (
	"errors"
	"fmt"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// tx is what a decision reads. It answers from the view wherever that holds enough and asks the database otherwise, in the group's
// transaction, after what the group has decided so far is written.
type tx struct {
	g   *group
	w   *work
	err error // of a query: the transaction is over, whatever the decision makes of it
}

var _ memory.AgentView = (*tx)(nil)

// errQuery marks errors of queries for decisions.
var errQuery = errors.New("a decision's query failed")

func (t *tx) query(sql string, args ...any) ([]memory.Message, error) {
	if t.err != nil {
		return nil, t.err
	}
	err := t.g.flush()
	if err == nil {
		var list []memory.Message
		if list, err = messages(t.g.ctx, t.g.conn, "SELECT "+messageColumns+" FROM message m WHERE m.agent_no = $1 "+sql, append([]any{t.w.view.no}, args...)...); err == nil {
			return list, nil
		}
	}
	t.err = fmt.Errorf("%w: %w", errQuery, err)
	return nil, t.err
}

// Head gives the agent's head.
func (t *tx) Head() memory.Head { return t.w.view.head }

// Last gives the newest n messages.
func (t *tx) Last(n int) ([]memory.Message, error) {
	if list, ok := t.w.view.newest(n, false); ok {
		return list, nil
	}
	list, err := t.query("ORDER BY m.seq DESC LIMIT $2", n)
	for i, j := 0, len(list)-1; i < j; i, j = i+1, j-1 {
		list[i], list[j] = list[j], list[i]
	}
	return list, err
}

// ByIDs gives the messages with these client ids.
func (t *tx) ByIDs(ids []string) (map[string]memory.Message, error) {
	out := map[string]memory.Message{}
	want := map[string]bool{}
	for _, id := range ids {
		if id != "" {
			want[id] = true
		}
	}
	for i := range t.w.view.tail {
		if m := &t.w.view.tail[i]; want[m.ID] {
			out[m.ID] = *m
			delete(want, m.ID)
		}
	}
	if t.w.view.full || len(want) == 0 {
		return out, nil
	}
	list := make([]string, 0, len(want))
	for id := range want {
		list = append(list, stored(id))
	}
	found, err := t.query("AND m.client_id = ANY($2)", list)
	for _, m := range found {
		out[m.ID] = m
	}
	return out, err
}

// Turn gives the messages of one turn. They stand close together, but where a turn's number went down anything may stand anywhere, so that only
// the whole ledger, or an ascending tail that begins before the turn, answers without a query.
func (t *tx) Turn(turnID int64) ([]memory.Message, error) {
	v := t.w.view
	if turnID > v.head.LastTurn {
		return nil, nil
	}
	if !v.full && (len(v.tail) == 0 || v.tail[0].TurnID >= turnID) {
		return t.query("AND m.turn = $2 ORDER BY m.seq", turnID)
	}
	var out []memory.Message
	for i := range v.tail {
		if m := &v.tail[i]; m.TurnID == turnID {
			out = append(out, *m)
		}
	}
	return out, nil
}

// Seq gives one message.
func (t *tx) Seq(seq int64) (memory.Message, error) {
	v := t.w.view
	i, ok := v.find(seq)
	if ok {
		return v.tail[i], nil
	}
	if !v.full && i == 0 && seq > 0 {
		list, err := t.query("AND m.seq = $2", seq)
		if err != nil {
			return memory.Message{}, err
		}
		if len(list) == 1 {
			return list[0], nil
		}
	}
	return memory.Message{}, fault.New(fault.NotFound, "there is no message with seq %d", seq)
}
