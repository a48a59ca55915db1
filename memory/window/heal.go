package window

import (
	"encoding/json"
	"slices"
)

// LostResult is the text of a stand-in for a tool's result.
const LostResult = "[the tool was interrupted; no result is known]"

// heal adds stand-ins for lost results: of calls without a result anywhere after them, if the
// conversation moved on. It moved on if something other than a result follows, or will follow, as
// movedOn reports. Stand-ins go after the last result found of their message, or after the message,
// in order of their IDs.
//
// If a later message makes calls too, the lost results of the earlier one are completed as well,
// because LLMs reject the list otherwise.
func heal(s []slot, movedOn bool) []slot {
	var out []slot // nil as long as nothing was put in
	done := 0
	f := findings(s)
	for i := range s {
		at, add := f.lostOf(s, i, movedOn)
		if len(add) == 0 {
			continue
		}
		if at < done { // results of two messages are mixed: after the stand-ins inserted already
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

// found has the places of a list's results.
type found struct {
	results map[string]int // by id, the place of the last one
	other   int            // the place of the last message that is something other than a result
}

// findings searches a list for calls and results.
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

// lostOf returns the stand-ins for the lost results of the message at i, and where they go. Unless
// movedOn is set, something other than results must follow the message.
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

// Lost returns stand-ins for the results of calls, in the format of the message that makes them:
// one message of role tool for each of OpenAI's calls, or one user message with a block for each of
// Anthropic's. text is their content.
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
