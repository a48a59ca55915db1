package memory

import (
	"encoding/json"
	"slices"

	"github.com/heardlog/heardlog/memory/view"
	"github.com/heardlog/heardlog/memory/window"
)

// ForWindow returns the message in the form that package window uses. A message that is not in
// memory has a status that keeps it out.
func (m *Message) ForWindow() window.Message {
	v := window.Message{
		Role: m.WireRole(), Text: m.Content, Parts: m.Parts, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID, ToolName: m.ToolName,
		Chars: int(m.Size()), Importance: m.Filed().Importance, Interrupted: m.Interrupted, Category: m.Filed().Category,
	}
	if m.Content == "" && len(m.Parts) == 0 && len(m.ToolCalls) > 0 {
		v.Parts = json.RawMessage("null")
	}
	if !m.InMemory() {
		v.Status = window.Discard
	}
	if s := m.Filed().Scope; s != (Scope{}) {
		v.Scope = &s
	}
	if len(v.Parts) > 0 || len(v.ToolCalls) > 0 || v.Role == Tool {
		links := v.ReadLinks() // once, not at each reading
		v.Links = &links
	}
	return v
}

// WireRole returns the role of the message as clients send it: tool results in content blocks come
// in a user message, and are stored as a tool's.
func (m *Message) WireRole() Role {
	if m.Role == Tool && m.ToolCallID == "" && len(m.Parts) > 0 {
		return User
	}
	return m.Role
}

// LastQuestion returns the newest user message and what follows it.
func LastQuestion(msgs []Message) []*Message {
	var out []*Message
	for i := len(msgs) - 1; i >= 0; i-- {
		m := &msgs[i]
		if !m.InContext() {
			continue
		}
		out = append(out, m)
		if m.Role == User {
			break
		}
	}
	slices.Reverse(out)
	return out
}

// ShownBy reports whether the message may be in an LLM call. Beyond InContext, these are answers
// of which nothing was heard, if the view shows them. Answers that never left the server (Empty),
// superseded ones and those that the platform replaced are never shown.
func (m *Message) ShownBy(v *view.View) bool {
	return m.InContext() ||
		v.ShowsUnheard() && m.Role == Assistant && m.Status == Accepted && (m.State == Final || m.State == Unplayed) && m.Original() != ""
}

// TextFor returns what the view shows of the message. heard is what was heard of it: for a message
// of the ledger its Content.
func (m *Message) TextFor(v *view.View, heard string) string { return v.Text(m.Answer(), heard) }

// Answer returns the message as a view needs it. What was said in place of a failed answer counts
// as heard.
func (m *Message) Answer() view.Answer {
	cut := m.Role == Assistant && m.Source != SourceLLMFailure &&
		(m.Interrupted || m.Generated != "" && m.Generated != m.Content || m.Failure != nil && m.CutGenerated)
	return view.Answer{Generated: m.Original(), Heard: m.Content, Cut: cut}
}
