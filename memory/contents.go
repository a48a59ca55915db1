package memory

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/heardlog/heardlog/memory/window"
)

// SinceBase returns the messages since the start of the memory, of every role and state, with the
// head as of the same moment.
func (s *Service) SinceBase(ctx context.Context, project, id string) (Head, []Message, error) {
	h, err := s.cfg.Store.Head(ctx, project, id)
	if err != nil {
		return Head{}, nil, err
	}
	for {
		const spare = 16 // for messages that arrive meanwhile
		n := max(h.NextSeq-max(h.Agent.Settings.Memory.BaseSeq, 1), 0) + spare
		var msgs []Message
		if h, msgs, err = s.cfg.Store.Recent(ctx, project, id, int(n), false); err != nil {
			return Head{}, nil, err
		}
		if int64(len(msgs)) < n || msgs[0].Seq <= max(h.Agent.Settings.Memory.BaseSeq, 1) {
			return h, h.Agent.Settings.Memory.Since(msgs), nil
		}
	}
}

// Remembered returns the messages in an agent's memory, in order of Seq, with the head as of the
// same moment or earlier.
func (s *Service) Remembered(ctx context.Context, project, id string) (Head, []Message, error) {
	h, stored, err := s.SinceBase(ctx, project, id)
	if err != nil {
		return Head{}, nil, err
	}
	out := make([]Message, 0, len(stored))
	for i := range stored {
		if stored[i].InMemory() {
			out = append(out, stored[i])
		}
	}
	return h, out, nil
}

// ForWindow returns the message in the form that package window uses. A message that is not in
// memory has a status that keeps it out.
func (m *Message) ForWindow() window.Message {
	v := window.Message{
		Role: m.WireRole(), Text: m.Content, Parts: m.Parts, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID, ToolName: m.ToolName,
		Chars: int(m.Size()), Importance: m.Importance(), Interrupted: m.Interrupted, Category: m.Category(),
	}
	if m.Content == "" && len(m.Parts) == 0 && len(m.ToolCalls) > 0 {
		v.Parts = json.RawMessage("null")
	}
	if !m.InMemory() {
		v.Status = window.Discard
	}
	if s := m.Scope(); s != (Scope{}) {
		v.Scope = &window.Scope{UserID: s.UserID, SessionID: s.SessionID, TaskID: s.TaskID}
	}
	if len(v.Parts) > 0 || len(v.ToolCalls) > 0 || v.Role == Tool {
		links := v.ReadLinks() // once, not at each reading
		v.Links = &links
	}
	return v
}

// windowMessages returns messages in the form that package window uses.
func windowMessages(msgs []Message) []window.Message {
	out := make([]window.Message, len(msgs))
	for i := range msgs {
		out[i] = msgs[i].ForWindow()
		out[i].Ref = i
	}
	return out
}

// WireRole returns the role of the message as clients send it: tool results in content blocks come
// in a user message, and are stored as a tool's.
func (m *Message) WireRole() Role {
	if m.Role == Tool && m.ToolCallID == "" && len(m.Parts) > 0 {
		return User
	}
	return m.Role
}

// OnlyResults reports whether a content consists of Anthropic's tool_result blocks only.
func OnlyResults(parts json.RawMessage) bool {
	if !bytes.Contains(parts, []byte(`"tool_result"`)) {
		return false
	}
	var blocks []struct{ Type string }
	if json.Unmarshal(parts, &blocks) != nil {
		return false
	}
	for _, b := range blocks {
		if b.Type != "tool_result" {
			return false
		}
	}
	return true
}
