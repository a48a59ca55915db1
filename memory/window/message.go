package window

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Role is the author of a message.
type Role string

// The roles. Developer counts as System in every rule.
const (
	System    Role = "system"
	Developer Role = "developer"
	User      Role = "user"
	Assistant Role = "assistant"
	Tool      Role = "tool"
)

// Message is what this package needs of one message. It never changes a message, nor what it points
// to.
type Message struct {
	// Ref is the caller's own number for the message; it is never read here.
	Ref  int
	Role Role
	// Text is the content if it is text. Parts is any other content: an array of blocks, an object,
	// null.
	Text  string
	Parts json.RawMessage
	// ToolCalls is the array of calls of an assistant message in OpenAI's format, ToolCallID the
	// call that a message of role tool answers. Anthropic's tool_use and tool_result are in Parts.
	ToolCalls  json.RawMessage
	ToolCallID string
	ToolName   string
	IsError    bool // of a tool's result
	// Links are the IDs of calls made and answered; nil to read them from the fields above when
	// needed.
	Links *Links
	// Chars is the size in code points as counted by the function Chars, Tokens the exact count; 0
	// to count when needed.
	Chars, Tokens int
	// Importance is from 0 to 1; nil to use Score.
	Importance *float64
	// Interrupted is set if the caller did not hear the answer to its end.
	Interrupted bool
	Status      Status
	Category    string
	Scope       *Scope // nil = none
}

// Links are the IDs that connect tool calls and their results, in order. Results may have "" for a
// result that does not name its call.
type Links struct {
	Calls   []string // IDs of calls that the message makes
	Results []string // ids of calls that it answers
}

// Instructs reports whether messages of the role are instructions to the model: those of the system
// and of developers.
func (r Role) Instructs() bool { return r == System || r == Developer }

// IsSystem reports whether the message instructs the model: its role is system or developer.
func (m *Message) IsSystem() bool { return m.Role.Instructs() }

// links returns the IDs of the calls that a message makes and answers.
func (m *Message) links() Links {
	if m.Links != nil {
		return *m.Links
	}
	return m.ReadLinks()
}

// ReadLinks reads the links of a message from its fields, ignoring m.Links. Broken JSON has none.
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

// block has the fields of a content block that are needed.
type block struct {
	Type      string `json:"type"`
	ID        string `json:"id"`
	ToolUseID string `json:"tool_use_id"`
}

// toolBlocks returns the blocks of the content if tool blocks are among them.
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

// mayLink reports, at low cost, whether a message could have links.
func (m *Message) mayLink() bool {
	return m.Role == Tool || m.Links != nil || len(m.ToolCalls) > 0 || len(m.Parts) > 0
}

// makesCalls reports whether the message calls tools.
func (m *Message) makesCalls() bool { return m.mayLink() && len(m.links().Calls) > 0 }

// isResult reports whether the message has tool results only: its role is tool, or it is a user
// message made of tool_result blocks.
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

// isUtterance reports whether the message is a user's, without tool results that would leave with
// it.
func (m *Message) isUtterance() bool {
	return m.Role == User && (!m.mayLink() || len(m.links().Results) == 0)
}

// words returns the texts of a message, one per line.
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

// isRealUser reports whether the user says something: a user message with more than tool results.
func (m *Message) isRealUser() bool { return m.Role == User && !m.isResult() }

// blank reports whether a text has only white space.
func blank(s string) bool { return strings.TrimSpace(s) == "" }
