package window

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Role is who a message is from.
type Role string

// The roles. Developer counts as System in every rule.
const (
	System    Role = "system"
	Developer Role = "developer"
	User      Role = "user"
	Assistant Role = "assistant"
	Tool      Role = "tool"
)

// Message is what the rules look at of one message. Nothing here writes to a message that it was given, nor to what it points at.
type Message struct {
	// Ref is the caller's own number for the message; it is never read here.
	Ref  int
	Role Role
	// Text is the content where it is text. Parts is the content where it is not: an array of blocks, an object, null.
	Text  string
	Parts json.RawMessage
	// ToolCalls is the array of calls of an assistant message in OpenAI's format, ToolCallID what a message of role tool answers. Anthropic's tool_use and
	// tool_result stand in Parts (001-7).
	ToolCalls  json.RawMessage
	ToolCallID string
	ToolName   string
	IsError    bool // of a tool's result
	// Links are the ids of calls made and answered, where the caller knows them; nil = they are read from the fields above when they are needed.
	Links *Links
	// Chars is the size in code points as Chars counts it, Tokens the exact count; 0 = not known, counted when needed.
	Chars, Tokens int
	// Importance is from 0 to 1; nil = Score makes one.
	Importance *float64
	// Interrupted tells that the caller did not hear the answer to its end.
	Interrupted bool
	Status      Status
	Category    string
	Scope       *Scope // nil = none
}

// Links are the ids by which tool calls and their results hang together, in their order; Results of a message that is one without saying whose may hold "".
type Links struct {
	Calls   []string // ids of calls that the message makes
	Results []string // ids of calls that it answers
}

// IsSystem tells whether the message instructs the model: of role system or developer.
func (m *Message) IsSystem() bool { return m.Role == System || m.Role == Developer }

// Links gives the ids of the calls that a message makes and answers.
func (m *Message) links() Links {
	if m.Links != nil {
		return *m.Links
	}
	return m.ReadLinks()
}

// ReadLinks reads the links of a message from its fields, whatever m.Links says. Broken JSON has none.
func (m *Message) ReadLinks() Links {
	var out Links
	if m.Role == Tool {
		out.Results = []string{m.ToolCallID}
	}
	if len(m.ToolCalls) > 0 {
		var calls []struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(m.ToolCalls, &calls) == nil {
			for _, c := range calls {
				out.Calls = append(out.Calls, c.ID)
			}
		}
	}
	for _, b := range m.toolBlocks() {
		switch b.Type {
		case "tool_use":
			out.Calls = append(out.Calls, b.ID)
		case "tool_result":
			if m.Role != Tool {
				out.Results = append(out.Results, b.ToolUseID)
			}
		}
	}
	return out
}

// block is what is looked at of a content block.
type block struct {
	Type      string `json:"type"`
	ID        string `json:"id"`
	ToolUseID string `json:"tool_use_id"`
}

// toolBlocks gives the blocks of the content if there are tools among them.
func (m *Message) toolBlocks() []block {
	if len(m.Parts) == 0 || !bytes.Contains(m.Parts, []byte(`"tool_`)) {
		return nil
	}
	var raw []json.RawMessage
	if json.Unmarshal(m.Parts, &raw) != nil {
		return nil
	}
	out := make([]block, len(raw))
	for i, r := range raw {
		if json.Unmarshal(r, &out[i]) != nil { // a text element, or an object of other types
			out[i] = block{}
		}
	}
	return out
}

// mayLink tells quickly whether a message could have links.
func (m *Message) mayLink() bool {
	return m.Role == Tool || m.Links != nil || len(m.ToolCalls) > 0 || len(m.Parts) > 0
}

// makesCalls tells whether the message calls tools.
func (m *Message) makesCalls() bool { return m.mayLink() && len(m.links().Calls) > 0 }

// isResult tells whether the message answers tools and does nothing else: of role tool, or a user message made of tool_result blocks only.
func (m *Message) isResult() bool {
	if m.Role == Tool {
		return true
	}
	if m.Role != User || !m.mayLink() {
		return false
	}
	l := m.links()
	if len(l.Results) == 0 {
		return false
	}
	for _, b := range m.toolBlocks() {
		if b.Type != "tool_result" {
			return false
		}
	}
	return true
}

// isUtterance tells whether the message is words of the user and nothing else: what may be dropped without taking a tool's result along.
func (m *Message) isUtterance() bool {
	return m.Role == User && (!m.mayLink() || len(m.links().Results) == 0)
}

// words gives the texts of a message, one line each.
func (m *Message) words() string {
	if len(m.Parts) == 0 {
		return m.Text
	}
	var list []json.RawMessage
	if json.Unmarshal(m.Parts, &list) != nil {
		return m.Text
	}
	var b strings.Builder
	for _, el := range list {
		if s, ok := blockText(el); ok {
			b.WriteString(s)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// isRealUser tells whether the user says something: a user message that holds more than tools' results (001-12).
func (m *Message) isRealUser() bool { return m.Role == User && !m.isResult() }

// blank tells whether a text has nothing but white space.
func blank(s string) bool { return strings.TrimSpace(s) == "" }
