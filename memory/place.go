package memory

import (
	"bytes"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
)

// Place returns a new message with its Seq, Rev and turn, and advances the head past it. answering
// reports that an answer to the last turn is being generated; then a user message opens a new turn.
// It returns fault.Invalid if the client gave a turn lower than the agent's latest.
func (h *Head) Place(m Message, rev, now int64, answering bool) (Message, error) {
	turn := h.turnFor(m, answering)
	if m.GivenTurn {
		if m.TurnID < max(h.LastTurn, 0) {
			return m, fault.At(fault.Invalid, "turn_id", "%d is below %d, the agent's latest turn; turn numbers never go down", m.TurnID, h.LastTurn)
		}
		turn = m.TurnID
	}
	m.ScopeOr(h.Agent.Settings.Scope)
	m.TurnHasUser = m.Role == User || (h.Last.Seq > 0 && turn == h.Last.TurnID && h.Last.TurnHasUser)
	m.Seq, m.Rev, m.TurnID, m.GivenTurn, m.Opens = h.NextSeq, rev, turn, false, turn > h.LastTurn
	m.Marks = Marks{} // a copy's are of another place
	if m.Timestamp == 0 {
		m.Timestamp = now
	}
	h.advance(m)
	h.Rev = max(h.Rev, rev)
	return m, nil
}

// ScopeOr sets the scope of a message that has none to its agent's.
func (m *Message) ScopeOr(agents Scope) {
	if agents != (Scope{}) && m.Filed().Scope == (Scope{}) {
		m.Amend(func(r *Details) { r.Scope = agents })
	}
}

// turnFor returns the turn that a message joins or opens. The first is 0. A user message opens a
// turn unless the open one has no answer yet. An answer joins its user's turn. Greeting, silence
// and speak open their own.
func (h *Head) turnFor(m Message, answering bool) int64 {
	switch {
	case h.LastTurn < 0:
		return 0
	case m.Role == Tool:
		return h.LastTurn
	case (m.Role == User || m.Role.Instructs()) && h.Last.TurnHasUser && !answering && !h.answered():
		return h.LastTurn
	case h.Last.Role.Instructs() && !h.Last.TurnHasUser && (m.Role == User || m.Role.Instructs()):
		return h.LastTurn // instructions belong to the turn that they are for
	case m.Role == Assistant && !m.Source.unsolicited() && h.Last.TurnHasUser:
		return h.LastTurn
	}
	return h.LastTurn + 1
}

// OwnTurn returns the turn of an answer that the caller did not ask for: a new one, unless the last
// turn is such an answer's and nothing came of it. In an empty ledger it is the first turn.
func (h *Head) OwnTurn() int64 {
	last := &h.Last
	if last.Seq == 0 {
		return max(h.LastTurn, 0)
	}
	open := last.Role == Assistant && (last.State == Empty || last.State == Superseded) || last.Role.Instructs()
	if open && !last.TurnHasUser && last.TurnID == h.LastTurn {
		return h.LastTurn
	}
	return h.LastTurn + 1
}

// answered reports whether the last turn has its answer. An empty answer leaves it open, as at
// Agora.
func (h *Head) answered() bool {
	if h.Last.Role != Assistant || h.Last.Original() == "" {
		return false
	}
	switch h.Last.State {
	// Unheard answers count too, so that late evidence does not change turn numbers
	case Final, Unplayed, Replaced, Dropped, Merged:
		return true
	}
	return false
}

func (s Source) unsolicited() bool {
	return s == SourceGreeting || s == SourceSilence || s == SourceCommand
}

// ByTurn returns the messages in order of their turns. Only messages of a turn that came between
// the question and the answer of another turn change their places.
func ByTurn(msgs []Message) []Message {
	before := func(a, b Message) int {
		switch {
		case a.TurnID < b.TurnID:
			return -1
		case a.TurnID > b.TurnID:
			return 1
		}
		return 0
	}
	if slices.IsSortedFunc(msgs, before) {
		return msgs
	}
	msgs = slices.Clone(msgs)
	slices.SortStableFunc(msgs, before)
	return msgs
}

// MaxBatch is how many messages one append takes.
const MaxBatch = 1000

// SameWords reports whether a repeated message equals the stored one. What became known later, such
// as what was heard, is not compared, nor are texts that were not stored.
func SameWords(stored, again Message) bool {
	if stored.Role != again.Role || stored.Source != again.Source {
		return false
	}
	return stored.Hidden() || stored.Original() == again.Original() &&
		stored.ToolCallID == again.ToolCallID && bytes.Equal(stored.ToolCalls, again.ToolCalls) && bytes.Equal(stored.Parts, again.Parts)
}

// MaxSnapshot is how many messages a snapshot may hold.
const MaxSnapshot = 10_000

// Refill returns the change that rebuilds the memory m of the agent with these messages. They are
// stored as new messages, and the head advances past them. copies is set if they are messages of
// that memory; then the limit on the length of a ledger does not apply.
func (h *Head) Refill(m *Memory, msgs []Message, now int64, copies bool) (Change, error) {
	c := Change{Copies: copies}
	m.BaseSeq = h.NextSeq
	rev := h.Rev + 1
	for _, msg := range msgs {
		msg.ID, msg.AnswerSeq, msg.GivenTurn, msg.State = "", 0, false, Final
		// Measured once, of the message that was copied.
		msg.Timings, msg.Usage, msg.Failure = nil, nil, nil
		msg.DropPlayback()
		msg, err := h.Place(msg, rev, now, false)
		if err != nil {
			return Change{}, err
		}
		c.Append = append(c.Append, msg)
	}
	return c, nil
}
