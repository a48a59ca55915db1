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
	f := findings(s)
	for i := range s {
		at, add := f.lostOf(s, i, movedOn)
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

// found says where a list's results are.
type found struct {
	results map[string]int // by id, the place of the last one
	other   int            // the place of the last message that is something other than a result
}

// findings looks once through a list; of one without calls it finds nothing.
func findings(s []slot) found {
	f := found{other: -1}
	if !slices.ContainsFunc(s, func(e slot) bool { return e.links }) {
		return f
	}
	f.results = map[string]int{}
	for i, e := range s {
		if !e.isResult() {
			f.other = i
		}
		if !e.links {
			continue
		}
		for _, id := range e.m.links().Results {
			f.results[id] = i
		}
	}
	return f
}

// lostOf gives the stand-ins for what is lost of the calls of the message at i, and where they go. Without movedOn something other than results must stand behind it.
func (f *found) lostOf(s []slot, i int, movedOn bool) (at int, add []slot) {
	if !s[i].links || !movedOn && f.other <= i {
		return 0, nil
	}
	calls := s[i].m.links().Calls
	if len(calls) == 0 {
		return 0, nil
	}
	at = i + 1
	var lost []string
	for _, id := range calls {
		if j, ok := f.results[id]; ok && j > i {
			at = max(at, j+1)
		} else if id != "" {
			lost = append(lost, id)
		}
	}
	if len(lost) == 0 {
		return 0, nil
	}
	slices.Sort(lost)
	for _, m := range Lost(s[i].m, slices.Compact(lost), LostResult) {
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
	inBlock := map[string]bool{}
	for _, b := range call.toolBlocks() {
		if b.Type == "tool_use" {
			inBlock[b.ID] = true
		}
	}
	var blocks []result
	for _, id := range ids {
		if inBlock[id] {
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
