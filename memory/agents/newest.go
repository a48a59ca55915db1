package agents

import (
	"math"
	"slices"

	"github.com/heardlog/heardlog/memory"
)

// ownMessage returns an assistant message that opens its own turn.
func (s *Messages) ownMessage(h *memory.Head, source memory.Source, text string, rev, now int64) memory.Message {
	// It cannot fail without a given turn
	m, _ := h.Place(memory.Message{Role: memory.Assistant, Source: source, Content: text, Method: memory.AssumedFull}, rev, now, false)
	return m
}

// newest returns the newest n of an agent's messages (stored and added) that an LLM may get, in
// order of turns, without tool results whose call is cut off.
func newest(stored, added []memory.Message, n int) []*memory.Message {
	out := make([]*memory.Message, 0, min(len(stored)+len(added), n))
	sorted, next := true, int64(math.MaxInt64)
	for _, list := range [][]memory.Message{added, stored} {
		for i := len(list) - 1; i >= 0; i-- {
			m := &list[i]
			sorted, next = sorted && m.TurnID <= next, m.TurnID
			if len(out) < n && m.InContext() {
				out = append(out, m)
			}
		}
	}
	if !sorted {
		return newestOf(memory.ByTurn(slices.Concat(stored, added)), n, func(m *memory.Message) bool { return m.InContext() })
	}
	slices.Reverse(out)
	return withoutOrphans(out)
}

// newestOf is newest for the rare lists: unordered turns, or a view that shows more than what was
// heard.
func newestOf(msgs []memory.Message, n int, shows func(*memory.Message) bool) []*memory.Message {
	var out []*memory.Message
	for i := range msgs {
		if shows(&msgs[i]) {
			out = append(out, &msgs[i])
		}
	}
	return withoutOrphans(out[max(0, len(out)-n):])
}

func withoutOrphans(out []*memory.Message) []*memory.Message {
	for len(out) > 0 && out[0].Role == memory.Tool {
		out = out[1:]
	}
	return out
}
