package window

import (
	"encoding/json"
	"slices"
)

// LostResult is what a stand-in says in place of a tool's result.
const LostResult = "[the tool was interrupted; no result is known]"

// heal gives stand-ins to calls whose results are lost: those without a result anywhere behind them, if the conversation moved on, that is, if something
// other than a result follows, or will follow, as movedOn tells. They stand behind the last result found of their message, or behind the message, in order of their ids (001-15).
//
// Where a later message calls again, the earlier one was moved on from: its lost results are completed too, for no LLM takes the list otherwise.
func heal(s []slot, movedOn bool) []slot {
	var out []slot // nil as long as nothing was put in
	done := 0
	for i := range s {
		at, add := lostOf(s, i, movedOn)
		if len(add) == 0 {
			continue
		}
		if at < done { // results of two messages mixed: behind what was put in already
			at = done
		}
		out = append(out, s[done:at]...)
		out = append(out, add...)
		done = at
	}
	if out == nil {
		return s
	}
	return append(out, s[done:]...)
}

// lostOf gives the stand-ins for what is lost of the calls of the message at i, and where they go. Without movedOn something other than results must stand behind it.
func lostOf(s []slot, i int, moved bool) (at int, add []slot) {
	if !s[i].links {
		return 0, nil
	}
	calls := s[i].m.links().Calls
	if len(calls) == 0 {
		return 0, nil
	}
	found, at := map[string]bool{}, i+1
	for j := i + 1; j < len(s); j++ {
		m := s[j].m
		if !m.isResult() {
			moved = true
		}
		if !m.mayLink() {
			continue
		}
		for _, id := range m.links().Results {
			if slices.Contains(calls, id) && !found[id] {
				found[id], at = true, j+1
			}
		}
	}
	var lost []string
	for _, id := range calls {
		if id != "" && !found[id] && !slices.Contains(lost, id) {
			lost = append(lost, id)
		}
	}
	if len(lost) == 0 || !moved {
		return 0, nil
	}
	slices.Sort(lost)
	for _, m := range Lost(s[i].m, lost, LostResult) {
		add = append(add, newSlot(&m, -1, StandIn))
	}
	return at, add
}

// Lost gives stand-in results for calls that a message makes, in its own format: of OpenAI's calls one message of role tool an id, of Anthropic's one user
// message with a block an id (001-16). text is what they say.
func Lost(call *Message, ids []string, text string) []Message {
	var out []Message
	type result struct {
		Type      string `json:"type"`
		ToolUseID string `json:"tool_use_id"`
		Content   string `json:"content"`
		IsError   bool   `json:"is_error"`
	}
	var blocks []result
	for _, id := range ids {
		if call.usesBlock(id) {
			blocks = append(blocks, result{"tool_result", id, text, true})
			continue
		}
		out = append(out, Message{Ref: -1, Role: Tool, Text: text, ToolCallID: id, IsError: true, Scope: call.Scope})
	}
	if len(blocks) > 0 {
		parts, err := json.Marshal(blocks)
		if err == nil { // strings and booleans always marshal
			out = append(out, Message{Ref: -1, Role: User, Parts: parts, Scope: call.Scope})
		}
	}
	return out
}

// usesBlock tells whether the call of that id stands in a tool_use block.
func (m *Message) usesBlock(id string) bool {
	return slices.ContainsFunc(m.toolBlocks(), func(b block) bool { return b.Type == "tool_use" && b.ID == id })
}
