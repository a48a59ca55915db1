package summary

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/memory"
)

// maxResult is how much of a tool's result goes into a transcript, in code points: what it was good for was said.
const maxResult = 2_000

// Transcript gives one line for each message, in their order; a message that says nothing has an empty one. What stands in it is what was heard: of an answer
// that was cut off, the part before the cut; of one that nobody heard, nothing.
func Transcript(msgs []memory.Message) []Line {
	out := make([]Line, len(msgs))
	for i := range msgs {
		m := &msgs[i]
		if m.InMemory() {
			out[i] = Line{Role: strings.ToUpper(string(m.Role)), Text: text(m)}
		}
	}
	return out
}

func text(m *memory.Message) string {
	var said []string
	if m.Content != "" || len(m.Parts) == 0 {
		said = append(said, m.Content)
	} else {
		said = append(said, blocks(m.Parts)...)
	}
	for _, name := range calls(m.ToolCalls) {
		said = append(said, "[calls "+name+"]")
	}
	s := oneLine(strings.Join(said, " "))
	if m.Role == memory.Tool {
		if m.ToolName != "" && s != "" {
			s = oneLine(m.ToolName) + ": " + s
		}
		return clip(s, maxResult)
	}
	return s
}

// blocks gives the texts of a content that is a list of blocks. Pictures, sounds and the input of tools are left out.
func blocks(parts json.RawMessage) []string {
	if trimmed := bytes.TrimSpace(parts); len(trimmed) == 0 || trimmed[0] != '[' {
		return nil
	}
	var list []json.RawMessage
	if json.Unmarshal(parts, &list) != nil {
		return nil
	}
	var out []string
	for _, raw := range list {
		var s string
		if json.Unmarshal(raw, &s) == nil {
			out = append(out, s)
			continue
		}
		var b struct {
			Type, Text, Name string
			Content          json.RawMessage
		}
		if json.Unmarshal(raw, &b) != nil {
			continue
		}
		switch {
		case b.Text != "":
			out = append(out, b.Text)
		case b.Type == "tool_use":
			out = append(out, "[calls "+b.Name+"]")
		case b.Type == "tool_result" && json.Unmarshal(b.Content, &s) == nil:
			out = append(out, "[result: "+clip(s, maxResult)+"]")
		case b.Type == "tool_result":
			out = append(out, blocks(b.Content)...)
		}
	}
	return out
}

// calls gives the names of the tools that a message calls.
func calls(raw json.RawMessage) []string {
	var list []struct{ Function struct{ Name string } }
	if len(raw) == 0 || json.Unmarshal(raw, &list) != nil {
		return nil
	}
	var out []string
	for _, c := range list {
		if c.Function.Name != "" {
			out = append(out, c.Function.Name)
		}
	}
	return out
}

// said tells whether anything was.
func said(lines []Line) bool {
	return slices.ContainsFunc(lines, func(l Line) bool { return strings.TrimSpace(l.Text) != "" })
}

// whole moves a cut behind the first n messages back to where no call stands before it whose result stands behind it; where that leaves nothing, the cut stays: a reader of
// the memory leaves out results without their call.
func whole(msgs []memory.Message, n int) int {
	if n >= len(msgs) {
		return len(msgs)
	}
	at := n
	for at > 0 && msgs[at].Role == memory.Tool {
		at--
	}
	if at == 0 {
		return n
	}
	return at
}
