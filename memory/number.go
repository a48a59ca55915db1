package memory

import (
	"math"
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
	m.scopeOr(h.Agent.Settings.Scope)
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

// turnFor returns the turn that a message joins or opens. The first is 0. A user message opens a
// turn unless the open one has no answer yet. An answer joins its user's turn. Greeting, silence
// and speak open their own.
func (h *Head) turnFor(m Message, answering bool) int64 {
	switch {
	case h.LastTurn < 0:
		return 0
	case m.Role == Tool:
		return h.LastTurn
	case (m.Role == User || instructs(m.Role)) && h.Last.TurnHasUser && !answering && !h.answered():
		return h.LastTurn
	case instructs(h.Last.Role) && !h.Last.TurnHasUser && (m.Role == User || instructs(m.Role)):
		return h.LastTurn // instructions belong to the turn that they are for
	case m.Role == Assistant && !m.Source.unsolicited() && h.Last.TurnHasUser:
		return h.LastTurn
	}
	return h.LastTurn + 1
}

// instructs reports whether messages of the role are instructions to the model.
func instructs(r Role) bool { return r == System || r == Developer }

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

// own returns an assistant message that opens its own turn.
func (s *Service) own(h *Head, source Source, text string, rev, now int64) Message {
	// It cannot fail without a given turn
	m, _ := h.Place(Message{Role: Assistant, Source: source, Content: text, Method: AssumedFull}, rev, now, false)
	return m
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

// newest returns the newest n of an agent's messages (stored and added) that an LLM may get, in
// order of turns, without tool results whose call is cut off.
func newest(stored, added []Message, n int) []*Message {
	out := make([]*Message, 0, min(len(stored)+len(added), n))
	sorted, next := true, int64(math.MaxInt64)
	for _, list := range [][]Message{added, stored} {
		for i := len(list) - 1; i >= 0; i-- {
			m := &list[i]
			sorted, next = sorted && m.TurnID <= next, m.TurnID
			if len(out) < n && m.InContext() {
				out = append(out, m)
			}
		}
	}
	if !sorted {
		return newestOf(ByTurn(slices.Concat(stored, added)), n, (*View)(nil).Shows)
	}
	slices.Reverse(out)
	return withoutOrphans(out)
}

// newestOf is newest for the rare lists: unordered turns, or a view that shows more than what was
// heard.
func newestOf(msgs []Message, n int, shows func(*Message) bool) []*Message {
	var out []*Message
	for i := range msgs {
		if shows(&msgs[i]) {
			out = append(out, &msgs[i])
		}
	}
	return withoutOrphans(out[max(0, len(out)-n):])
}

func withoutOrphans(out []*Message) []*Message {
	for len(out) > 0 && out[0].Role == Tool {
		out = out[1:]
	}
	return out
}
