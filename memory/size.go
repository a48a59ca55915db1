package memory

import (
	"encoding/json"
	"unicode/utf8"
)

// Size gives how much a message counts towards a budget, in code points (reference/memory-semantics.md 001-3): its text; of a list of parts the text of
// each, else its content if that is text, else the length of its JSON; a missing content the 4 of "null". Role, ids and calls cost nothing.
func (m *Message) Size() int64 {
	if m.Chars > 0 {
		return m.Chars
	}
	return m.measure()
}

// measure counts what Size gives.
func (m *Message) measure() int64 {
	if len(m.Parts) > 0 {
		return SizeOf(m.Parts)
	}
	if m.Content == "" && len(m.ToolCalls) > 0 {
		return int64(len("null"))
	}
	return int64(utf8.RuneCountInString(m.Content))
}

// SizeOf gives the size of a content as it stands in JSON: a text, a list of blocks or texts, or anything else.
func SizeOf(content json.RawMessage) int64 {
	if len(content) == 0 {
		return int64(len("null"))
	}
	switch content[0] {
	case '"':
		var s string
		if json.Unmarshal(content, &s) == nil {
			return int64(utf8.RuneCountInString(s))
		}
	case '[':
		var list []json.RawMessage
		if json.Unmarshal(content, &list) != nil {
			break
		}
		n := int64(0)
		for _, b := range list {
			n += sizeOfBlock(b)
		}
		return n
	}
	return int64(utf8.RuneCount(content))
}

func sizeOfBlock(b json.RawMessage) int64 {
	if len(b) > 0 && b[0] == '"' {
		return SizeOf(b)
	}
	var block struct {
		Text    *string         `json:"text"`
		Content json.RawMessage `json:"content"`
	}
	if len(b) == 0 || b[0] != '{' || json.Unmarshal(b, &block) != nil {
		return int64(utf8.RuneCount(b))
	}
	switch {
	case block.Text != nil:
		return int64(utf8.RuneCountInString(*block.Text))
	case len(block.Content) > 0 && block.Content[0] == '"':
		return SizeOf(block.Content)
	}
	return int64(utf8.RuneCount(b))
}

// measured sets the size of all that a change writes.
func (c *Change) measured() {
	for _, list := range [][]Message{c.Append, c.Replace} {
		for i := range list {
			list[i].Chars = list[i].measure()
		}
	}
}
