package summary

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/memory"
)

// maxResult is how much of a tool result goes into a transcript, in code points. What matters of it
// was said in the answer.
const maxResult = 2_000

// Transcript returns one line for each message, in order; the line of a message without words is
// empty. A line holds what was heard: of an interrupted answer the part before the interruption, of
// an unheard answer nothing.
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

// blocks returns the texts of a content that is a list of blocks, without pictures, sounds and tool
// input.
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

// calls returns the names of the tools that a message calls.
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

// said reports whether any line has words.
func said(lines []Line) bool {
	return slices.ContainsFunc(lines, func(l Line) bool { return strings.TrimSpace(l.Text) != "" })
}

// whole moves a cut after the first n messages back, so that no tool call before it has its result
// after it. If nothing would be left, the cut stays: readers of the memory leave out results
// without their call.
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
