package window

import (
	"encoding/json"
	"slices"
)

// mend is the last step of the cuts: see Integrity.
func (r *rules) mend(s []slot, movedOn bool) []slot {
	switch r.integrity {
	case IntegrityTrailing:
		return completeTail(s)
	case IntegrityAtomic:
		return withoutOrphans(s)
	case IntegrityHeal:
		return heal(withoutOrphans(s), movedOn)
	}
	return s
}

// completeTail removes incomplete pairs from the end: a message with calls that is last, and a last
// result whose call is in no earlier message, until neither is last. What is incomplete further up
// stays, and so does a batch with only some of its results.
func completeTail(s []slot) []slot {
	var made map[string]int // number of messages of s that make the call, by ID; nil until needed
	for len(s) > 0 {
		last := s[len(s)-1]
		if !last.links {
			return s
		}
		l := last.m.links()
		if len(l.Calls) == 0 {
			if made == nil {
				made = callsOf(s)
			}
			if !last.isResult() || slices.ContainsFunc(l.Results, func(id string) bool { return made[id] > 0 }) {
				return s
			}
		}
		if made != nil {
			for _, id := range l.Calls {
				made[id]--
			}
		}
		s = s[:len(s)-1]
	}
	return s
}

// callsOf counts calls by their ids.
func callsOf(s []slot) map[string]int {
	made := map[string]int{}
	for _, e := range s {
		if e.links {
			for _, id := range e.m.links().Calls {
				made[id]++
			}
		}
	}
	return made
}

// withoutOrphans removes results whose call is in no earlier message, in place. A message with
// other content keeps that.
func withoutOrphans(s []slot) []slot {
	if !slices.ContainsFunc(s, func(e slot) bool { return e.links }) {
		return s
	}
	made := map[string]bool{}
	out := s[:0]
	for _, e := range s {
		if e.links {
			l := e.m.links()
			orphan := func(id string) bool { return id == "" || !made[id] }
			if slices.ContainsFunc(l.Results, orphan) {
				var ok bool
				if e, ok = e.without(nil, orphan); !ok {
					continue
				}
			}
			for _, id := range l.Calls {
				made[id] = true
			}
		}
		out = append(out, e)
	}
	return out
}

// without returns the message without the calls and results that the functions select, and false if
// nothing is left. A nil function selects none.
func (e slot) without(call, result func(id string) bool) (slot, bool) {
	m := e.m
	if m.Role == Tool {
		if result != nil && result(m.ToolCallID) {
			return e, false
		}
		return e, true
	}
	cut := *m
	changed := false
	if call != nil && len(m.ToolCalls) > 0 {
		cut.ToolCalls, changed = nil, true
	}
	if parts, ok := keepBlocks(m, call, result); ok {
		cut.Parts, changed = parts, true
	}
	if !changed {
		return e, true
	}
	if string(cut.Parts) == "[]" {
		cut.Parts = nil
	}
	if blank(cut.Text) && (len(cut.Parts) == 0 || string(cut.Parts) == "null") {
		return e, false
	}
	cut.Links, cut.Chars, cut.Tokens = nil, 0, 0
	return newSlot(&cut, int(e.at), Altered), true
}

// keepBlocks returns the content without the tool blocks that the functions select; false if there
// are none.
func keepBlocks(m *Message, call, result func(id string) bool) (json.RawMessage, bool) {
	blocks := m.toolBlocks()
	if blocks == nil {
		return nil, false
	}
	var raw []json.RawMessage
	if json.Unmarshal(m.Parts, &raw) != nil {
		return nil, false
	}
	kept := make([]json.RawMessage, 0, len(raw))
	for i, b := range blocks {
		gone := b.Type == "tool_use" && call != nil && call(b.ID) || b.Type == "tool_result" && result != nil && result(b.ToolUseID)
		if !gone {
			kept = append(kept, raw[i])
		}
	}
	if len(kept) == len(raw) {
		return nil, false
	}
	out, err := json.Marshal(kept)
	return out, err == nil
}
